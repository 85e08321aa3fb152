"""Text for language models: files, or the embedded corpus, as packed blocks of tokens."""

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.blocks import Blocks
from txlab.data.cache import absolute, cache_folder, key
from txlab.data.collection import PARTS, Collection, OnError, Source
from txlab.data.corpus import embedded
from txlab.data.filter import Filter, check_pattern
from txlab.data.shards import open_shards
from txlab.data.source import Data, data
from txlab.data.store import refusal
from txlab.data.tokenizer.making import obtain
from txlab.data.tokenizer.tokenizer import Tokenizer

VERSION = 2
"""Raise when the same text and settings would give other files."""


class Documents(StrEnum):
    """What documents that share a row are to each other."""

    isolated = "isolated"
    """Invisible; positions restart."""
    joined = "joined"
    """One running text."""


@data("text")
class Text(Data):
    """Text files or the embedded corpus: `<bos> text <eos>` documents, packed into rows.

    The split holds out documents by a hash of their text, whatever the seed: runs with different
    seeds are measured on the same text, and equal documents are never on both sides.
    """

    @dataclass
    class Config(Data.Config):
        path: str | None = None
        """A file (text, JSONL, CSV, TSV, Parquet, Arrow), a folder or pattern of them; None: the
        embedded corpus."""
        field: str = "text"
        """Field of the text in records that have fields: JSONL, CSV, TSV, Parquet, Arrow."""
        min_chars: int = 0
        """Shorter documents are left out and counted."""
        max_chars: int | None = None
        """Longer documents are left out and counted."""
        pattern: str | None = None
        """Regular expression; documents in which it is nowhere found are left out and counted."""
        dedup: bool = False
        """Whether a document that is equal to one before it is left out and counted."""
        on_error: OnError = OnError.error
        """error: bad input ends the run; skip: it is left out and counted."""
        val_fraction: float = 0.05
        """Part of the text (by bytes, about) that is held out for validation."""
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
            check_pattern(self.pattern)
            self.path, self.cache_dir = absolute(self.path), absolute(self.cache_dir)

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
        source = key(version=VERSION, **collection.identity)
        self.tokenizer = obtain(self._tokenizer, cache=cache, source=source, train=collection.train)
        folder = cache / "text" / key(source=source, tokenizer=self.tokenizer.fingerprint)
        if not (folder / "facts.json").exists():
            collection.write(folder, self.tokenizer, source)
        facts = _facts(folder / "facts.json")
        (shards,) = facts["shards"]
        self.train, self.val = (
            self._rows(folder, part, n, source) for part, n in zip(PARTS, shards, strict=True)
        )
        self._enough(facts["train_tokens"])
        self.facts = {
            "source": collection.path,
            "sha256": collection.sha256,
            **origin,
            **facts,
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

    def _collection(self, cache: Path) -> tuple[Collection, dict[str, Any]]:
        """The documents to read, and what is known about their origin."""
        config = self.config
        path, field = config.path, config.field
        if path is not None:
            found = files.find(path)
            source = Source(path, path, found, field)
            origin: dict[str, Any] = {"files": len(found)}
        else:
            if field != "text":
                raise RequestError(f"data.field={field} is for files: give data.path=FILE as well.")
            corpus = embedded(cache)
            source = Source("embedded corpus", "embedded corpus", [corpus.file], field)
            origin = {
                "python": platform.python_version(),
                "dropped_repeated": corpus.repeated,
                "dropped_short": corpus.short,
            }
        collection = Collection(
            [source],
            val_fraction=config.val_fraction,
            wanted=Filter(config.min_chars, config.max_chars, config.pattern),
            dedup=config.dedup,
            on_error=config.on_error,
        )
        return collection, origin

    def _rows(self, folder: Path, part: str, n: int, source: str) -> Blocks:
        mine = self.tokenizer
        store = open_shards(
            folder,
            part,
            n=n,
            vocab_size=mine.vocab_size,
            tokenizer=mine.fingerprint,
            source=source,
        )
        isolate = self.config.documents is Documents.isolated
        return Blocks(store, context=self.width, pad_id=mine.pad_id, isolate=isolate)

    def _enough(self, tokens: int) -> None:
        if tokens < self.width + 1:
            needs = "model.context" if self.width == self.context else f"{self.width} of its places"
            raise RequestError(
                f"{self.config.path or 'the embedded corpus'}: {tokens} tokens to train on, a row "
                f"needs {needs} + 1 = {self.width + 1}; give more text, a smaller "
                "model.context, or data.val_fraction=0."
            )


def _facts(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise refusal(file, "it cannot be read") from error
