"""Text for language models: files, or the embedded corpus, as packed blocks of tokens."""

import json
import platform
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.blocks import Blocks
from txlab.data.cache import absolute, cache_folder, key
from txlab.data.collection import PARTS, Collection
from txlab.data.corpus import embedded
from txlab.data.source import Data, data
from txlab.data.store import Store, refusal
from txlab.data.tokenizer.making import obtain
from txlab.data.tokenizer.tokenizer import Tokenizer

VERSION = 1
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
        """A .txt, .md or .jsonl file, a folder or pattern of them; None: the embedded corpus."""
        field: str = "text"
        """Key of the text in a .jsonl line."""
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

    def prepare(self) -> None:
        cache = cache_folder(self.config.cache_dir)
        collection, origin = self._collection(cache)
        source = key(version=VERSION, **collection.identity)
        self.tokenizer = obtain(self._tokenizer, cache=cache, source=source, train=collection.train)
        folder = cache / "text" / key(source=source, tokenizer=self.tokenizer.fingerprint)
        if not (folder / "facts.json").exists():
            collection.write(folder, self.tokenizer, source)
        facts = _facts(folder / "facts.json")
        self.train, self.val = (self._rows(folder / f"{part}.tokens", source) for part in PARTS)
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

    def _collection(self, cache: Path) -> tuple[Collection, dict[str, Any]]:
        """The documents to read, and what is known about their origin."""
        path, field, fraction = self.config.path, self.config.field, self.config.val_fraction
        if path is not None:
            found = files.find(path)
            return Collection(path, found, field, fraction), {"files": len(found)}
        if field != "text":
            raise RequestError(f"data.field={field} is for files: give data.path=FILE as well.")
        corpus = embedded(cache)
        return Collection("embedded corpus", [corpus.file], field, fraction), {
            "python": platform.python_version(),
            "dropped_repeated": corpus.repeated,
            "dropped_short": corpus.short,
        }

    def _rows(self, file: Path, source: str) -> Blocks:
        mine = self.tokenizer
        store = Store(file, vocab_size=mine.vocab_size, tokenizer=mine.fingerprint, source=source)
        isolate = self.config.documents is Documents.isolated
        return Blocks(store, context=self.context, pad_id=mine.pad_id, isolate=isolate)

    def _enough(self, tokens: int) -> None:
        if tokens < self.context + 1:
            raise RequestError(
                f"{self.config.path or 'the embedded corpus'}: {tokens} tokens to train on, a row "
                f"needs model.context + 1 = {self.context + 1}; give more text, a smaller "
                "model.context, or data.val_fraction=0."
            )


def _facts(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise refusal(file, "it cannot be read") from error
