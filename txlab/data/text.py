"""Text for language models: files, or the embedded corpus, as packed rows of tokens."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from txlab.data.blocks import Blocks
from txlab.data.cache import absolute, cache_folder, key
from txlab.data.collection import PARTS, Collection, OnError
from txlab.data.filter import Filter, check_pattern
from txlab.data.joined import Joined, Span
from txlab.data.layout import Documents, Packing, check_enough, laid, places
from txlab.data.mixing import Mixed, whole_weights
from txlab.data.order import Order
from txlab.data.origins import Part, located, parts, source
from txlab.data.packing import Packed
from txlab.data.rows import Rows
from txlab.data.shards import Shards, open_shards
from txlab.data.source import Data, data
from txlab.data.store import refusal
from txlab.data.tokenizer.making import obtain
from txlab.data.tokenizer.tokenizer import Tokenizer

VERSION = 2
"""Raise when the same text and settings would give other files."""


@data("text")
class Text(Data):
    """Text files or the embedded corpus: `<bos> text <eos>` documents, packed into rows.

    The split holds out documents by a hash of their text, whatever the seed: runs with different
    seeds are measured on the same text, and equal documents are never on both sides.
    """

    @dataclass
    class Config(Data.Config):
        path: str | None = None
        """A file (text, JSONL, CSV, TSV, Parquet, Arrow), a folder or pattern of them, or
        hf://NAME of the Hugging Face hub; None: the embedded corpus."""
        field: str = "text"
        """Field of the text in records that have fields: JSONL, CSV, TSV, Parquet, Arrow."""
        subset: str | None = None
        """Configuration of a data set of the hub that has several."""
        split: str = "train"
        """Split of a data set of the hub."""
        mix: list[Any] = dataclasses.field(default_factory=list)
        """Several sources, instead of path: `[{path: a, weight: 3}, {path: b}]`, also with name,
        field, subset, split. Rows come in the exact proportions of the weights; a source of
        weight 0 is for validation alone."""
        min_chars: int = 0
        """Shorter documents are left out and counted."""
        max_chars: int | None = None
        """Longer documents are left out and counted."""
        matches: str | None = None
        """Regular expression; documents in which it is nowhere found are left out and counted."""
        dedup: bool = False
        """Whether a document that is equal to one before it is left out and counted."""
        on_error: OnError = OnError.error
        """error: bad input ends the run; skip: it is left out and counted."""
        val_fraction: float = 0.05
        """Part of the text (by bytes, about) that is held out for validation, of each source."""
        packing: Packing = Packing.blocks
        """blocks: rows are cut from one stream; best_fit: whole documents share rows; none: a
        document a row. Documents longer than a row are cut into pieces as long as it."""
        documents: Documents = Documents.isolated
        """isolated: documents of a row do not see each other; joined: a row is one text."""
        cache_dir: str | None = None
        """Folder for tokenizers and tokens; None: $XDG_CACHE_HOME/txlab or ~/.cache/txlab."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.val_fraction < 1, "val_fraction", "a number from 0 to below 1")
            self.require(self.path != "", "path", "a file, a folder or a pattern, or null")
            most = self.max_chars
            self.require(self.min_chars >= 0, "min_chars", "0 or more")
            self.require(
                most is None or most >= max(self.min_chars, 1),
                "max_chars",
                "a number above 0 that is not below min_chars, or null",
            )
            check_pattern(self.matches)
            self.require(
                Packing(self.packing) is Packing.blocks or self.documents is Documents.isolated,
                "documents",
                f"isolated with packing={self.packing}",
            )
            self.path, self.cache_dir = located(self.path), absolute(self.cache_dir)
            self.require(self.path is None or not self.mix, "path", "null beside mix")
            self.require(
                not self.mix or self.batch_tokens is None, "batch_tokens", "null beside mix"
            )
            found = parts(self.mix)
            weights = [part.weight for part in found if part.weight]
            self.require(not found or bool(weights), "mix", "a weight above 0 for one at least")
            whole_weights(weights)
            # As paths beside it are: absolute, so that a saved config means the same anywhere.
            self.mix = [
                {**entry, **({} if part.path is None else {"path": part.path})}
                for entry, part in zip(self.mix, found, strict=True)
            ]

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer.Config | Tokenizer,
        *,
        context: int,
        seed: int = 0,
    ) -> None:
        super().__init__(config, tokenizer, context=context, seed=seed)
        self.config: Text.Config = config

    def texts(self, tokenizer: Tokenizer) -> Iterator[str]:
        collection, _ = self._collection(cache_folder(self.config.cache_dir))
        return collection.training_texts(tokenizer)

    def prepare(self) -> None:
        cache = cache_folder(self.config.cache_dir)
        collection, origin = self._collection(cache)
        made_of = key(version=VERSION, **collection.identity)
        self.tokenizer = obtain(
            self._tokenizer, cache=cache, source=made_of, train=collection.train
        )
        folder = cache / "text" / key(source=made_of, tokenizer=self.tokenizer.fingerprint)
        if not (folder / "facts.json").exists():
            collection.write(folder, self.tokenizer, made_of)
        facts = _facts(folder / "facts.json")
        self._names = [source.name for source in collection.sources]
        rows: dict[str, list[Blocks | Packed]] = {part: [] for part in PARTS}
        for place, shards in enumerate(facts.pop("shards")):
            for part, n in zip(PARTS, shards, strict=True):
                store = self._store(collection.folder(folder, place), part, n, made_of)
                rows[part].append(self._rows(store))
                if part == "train" and self._weights[place]:
                    check_enough(collection.sources[place].path, rows[part][-1], self.context)
        self._of_source = {part: [len(found) for found in rows[part]] for part in PARTS}
        self._places = np.array([places(found) for found in rows["train"]], dtype=np.float64)
        self.train, self.val = (
            found[0] if len(found) == 1 else Joined(found, pad_id=self.tokenizer.pad_id)
            for found in rows.values()
        )
        self.facts = {
            "source": collection.path,
            "sha256": collection.sha256,
            **origin,
            **facts,
            **self._mixture(),
            "tokenizer": self.tokenizer.fingerprint,
            "vocab_size": self.tokenizer.vocab_size,
            "context": self.context,
            "train_rows": len(self.train),
            "val_rows": len(self.val),
            "cache": str(folder),
        }

    @property
    def width(self) -> int:
        """Tokens of text in a row."""
        return self.context

    def order(self) -> Order:
        if not self.config.mix:
            return super().order()
        trained = self._trained
        sizes = [self._of_source["train"][place] for place in trained]
        weights = [self._weights[place] for place in trained]
        return Mixed(sizes, weights, self.config.batch_size, self.seed)

    @property
    def notes(self) -> list[str]:
        found = super().notes
        found += [f"left out: {fault}" for fault in self.facts.get("faults", [])]
        if n := self.facts.get("unread_files"):
            found.append(f"{n} other file(s) of the folder are of no kind that is read")
        if passes := self.facts.get("passes"):
            said = ", ".join(f"{name} {n:.2f} times" for name, n in passes.items())
            found.append(f"an epoch goes through {said}")
        return found

    def val_parts(self) -> dict[str, Rows]:
        found, begin = {}, 0
        for name, n in zip(self._names, self._of_source["val"], strict=True):
            found[name] = Span(self.val, begin, begin + n)
            begin += n
        return found if len(found) > 1 else {}

    @property
    def row_tokens(self) -> float:
        return self._mean(0)

    @property
    def sequence(self) -> float:
        return self._mean(1)

    def _mean(self, figure: int) -> float:
        """Of the sources' `places`, as often as each comes."""
        weights = np.array(self._weights, dtype=np.float64)[self._trained]
        return float(weights @ self._places[self._trained, figure] / weights.sum())

    @property
    def _weights(self) -> list[float]:
        return [part.weight for part in parts(self.config.mix)] or [1.0]

    @property
    def _trained(self) -> list[int]:
        """Numbers of the sources that are not held out whole."""
        return [place for place, weight in enumerate(self._weights) if weight]

    def _collection(self, cache: Path) -> tuple[Collection, dict[str, Any]]:
        """The documents to read, and what is known about their origin."""
        config = self.config
        own = Part(config.path, field=config.field, subset=config.subset, split=config.split)
        found, origin = [], {}
        for part in parts(config.mix) or [own]:
            part.field = part.field or config.field
            part.subset, part.split = part.subset or config.subset, part.split or config.split
            of_part, known = source(part, cache)
            found.append(of_part)
            for key_, value in known.items():  # counts are added up
                origin[key_] = origin[key_] + value if isinstance(origin.get(key_), int) else value
        collection = Collection(
            found,
            val_fraction=config.val_fraction,
            held_out=[place for place, weight in enumerate(self._weights) if not weight],
            wanted=Filter(config.min_chars, config.max_chars, config.matches),
            dedup=config.dedup,
            on_error=config.on_error,
        )
        return collection, origin

    def _store(self, folder: Path, part: str, n: int, source: str) -> Shards:
        mine = self.tokenizer
        about: dict[str, Any] = {"tokenizer": mine.fingerprint, "source": source}
        return open_shards(folder, part, n=n, vocab_size=mine.vocab_size, **about)

    def _rows(self, store: Shards) -> Blocks | Packed:
        config = self.config
        pad_id = self.tokenizer.pad_id
        return laid(store, config.packing, config.documents, width=self.width, pad_id=pad_id)

    def _mixture(self) -> dict[str, Any]:
        """How often each source is gone through in an epoch, where there are several."""
        order = self.order() if self.config.mix else None
        if not isinstance(order, Mixed):
            return {}
        passes = zip([self._names[place] for place in self._trained], order.passes(), strict=True)
        return {"passes": {name: round(n, 4) for name, n in passes}}


def _facts(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise refusal(file, "it cannot be read") from error
