"""The documents of some files: counted, split, tokenised, written."""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from txlab.core.errors import RequestError, RunError
from txlab.data import files
from txlab.data.cache import whole
from txlab.data.split import Split, choose, digest
from txlab.data.store import Store, StoreWriter
from txlab.data.tokenizer.tokenizer import Tokenizer

PARTS = ("train", "val")
BATCH = 1 << 20
"""Characters tokenised at once."""


@dataclass(frozen=True)
class Survey:
    """What one reading of all documents found."""

    split: Split
    documents: int
    blank: int
    """Documents of nothing but white space, left out."""
    bytes: int


class Collection:
    """Documents of text files, read anew (never all in memory) each time they are gone through."""

    def __init__(self, path: str, found: Sequence[Path], field: str, val_fraction: float) -> None:
        self.path = path
        self.sha256 = files.digest(found)
        self._files = found
        self._field = field
        self._val_fraction = val_fraction

    def texts(self) -> Iterator[str]:
        """Every document that is not blank."""
        return (text for text in files.documents(self._files, self._field) if not _blank(text))

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the documents and their split."""
        kinds = [file.suffix.lower() for file in self._files]
        return {
            "text": self.sha256,
            "kinds": kinds,
            "field": self._field,
            "val_fraction": self._val_fraction,
        }

    @functools.cached_property
    def survey(self) -> Survey:
        """Counts and split; RequestError where a file is bad or there is no text at all."""
        seen: list[tuple[bytes, int]] = []
        blank = 0
        for text in files.documents(self._files, self._field):
            if _blank(text):
                blank += 1
            else:
                seen.append((digest(text), len(text.encode())))
        if not seen:
            what = f"{blank} blank documents" if blank else "nothing"
            raise RequestError(
                f"data.path={self.path}: no text, {len(self._files)} file(s) hold {what}."
            )
        split = choose(seen, self._val_fraction)
        return Survey(split, len(seen), blank, sum(size for _, size in seen))

    def parts(self) -> Iterator[tuple[bool, str]]:
        """(held out?, text) of every document, or of both halves of one that is cut."""
        split = self.survey.split
        return (part for text in self.texts() for part in split.parts(text) if not _blank(part[1]))

    def train(self, tokenizer: Tokenizer) -> None:
        """Train a tokenizer on what is not held out."""
        tokenizer.train(text for held_out, text in self.parts() if not held_out)
        self._unchanged()

    def write(self, folder: Path, tokenizer: Tokenizer, source: str) -> None:
        """Write train.tokens, val.tokens and, when both are whole, facts.json."""
        about = {
            "vocab_size": tokenizer.vocab_size,
            "tokenizer": tokenizer.fingerprint,
            "source": source,
        }
        sizes = [0, 0]
        with (
            StoreWriter(folder / "train.tokens", **about) as train,
            StoreWriter(folder / "val.tokens", **about) as val,
        ):
            for held_out, ids, ends in self._encoded(tokenizer, sizes):
                writer = val if held_out else train
                writer.add(ids)
                if ends:
                    writer.end()
        self._unchanged()
        survey = self.survey
        facts: dict[str, Any] = {
            "documents": survey.documents,
            "blank_documents": survey.blank,
            "bytes": survey.bytes,
            "split": survey.split.rule,
        }
        stores = [
            Store(folder / f"{part}.tokens", vocab_size=tokenizer.vocab_size) for part in PARTS
        ]
        for part, store, size in zip(PARTS, stores, sizes, strict=True):
            facts |= {
                f"{part}_documents": store.header.documents,
                f"{part}_tokens": store.header.count,
                f"{part}_supervised": store.header.count - store.header.documents,
                f"{part}_bytes": size,
            }
        facts["unigram_entropy"] = entropy(stores[1])
        with whole(folder / "facts.json") as stream:
            stream.write(json.dumps(facts, indent=1).encode())

    def _unchanged(self) -> None:
        if files.digest(self._files) != self.sha256:
            raise RunError(f"{self.path} was changed while it was read; run again.")

    def _encoded(
        self, tokenizer: Tokenizer, sizes: list[int]
    ) -> Iterator[tuple[bool, list[int], bool]]:
        """(held out?, ids, ends its document?) of each piece; adds up bytes of [train, val]."""
        waiting: list[tuple[bool, str, bool, bool]] = []
        length = 0
        for held_out, text in self.parts():
            sizes[held_out] += len(text.encode())
            pieces = list(tokenizer.pieces(text))
            for number, piece in enumerate(pieces, 1):
                waiting.append((held_out, piece, number == 1, number == len(pieces)))
                length += len(piece)
                if length >= BATCH:
                    yield from _encode(tokenizer, waiting)
                    waiting, length = [], 0
        yield from _encode(tokenizer, waiting)


def _encode(
    tokenizer: Tokenizer, pieces: Sequence[tuple[bool, str, bool, bool]]
) -> Iterator[tuple[bool, list[int], bool]]:
    batch = tokenizer.encode_batch([text for _, text, _, _ in pieces])
    for (held_out, _, begins, ends), ids in zip(pieces, batch, strict=True):
        bos = [tokenizer.bos_id] if begins and tokenizer.bos_id is not None else []
        eos = [tokenizer.eos_id] if ends else []
        yield held_out, [*bos, *ids, *eos], ends


def entropy(store: Store) -> float | None:
    """Entropy in nats of the targets' distribution (each token but the first of a document)."""
    counts = np.bincount(store.tokens).astype(np.float64)
    if not counts.size:
        return None
    starts = np.bincount(store.tokens[store.offsets[:-1]], minlength=len(counts))
    shares = (counts - starts)[counts > starts] / (counts - starts).sum()
    return float(-(shares * np.log(shares)).sum())


def _blank(text: str) -> bool:
    return not text or text.isspace()
