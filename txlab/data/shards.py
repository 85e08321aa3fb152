"""One part of a data set on disk: numbered token stores, read as if they were one."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from txlab.core.errors import RunError
from txlab.data.cache import whole
from txlab.data.store import Store, StoreWriter, refusal

SHARD = 1 << 28
"""Tokens after which a shard is closed, at the end of the document: 0.5 GB of 16-bit ids."""
SPAN = 1 << 24
"""Tokens looked at at once."""
LARGE = 1 << 30
"""Bytes from which on a store is not read through each time it is opened, but once."""


class ShardWriter:
    """Writes FOLDER/PART-00000.tokens and on; a document is in one shard."""

    def __init__(
        self, folder: Path, part: str, *, vocab_size: int, tokenizer: str, source: str
    ) -> None:
        self.folder, self.part = folder, part
        self._about: dict[str, Any] = {
            "vocab_size": vocab_size,
            "tokenizer": tokenizer,
            "source": source,
        }
        self._number = -1

    def __enter__(self) -> Self:
        self._open()
        return self

    def extend(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Append ids; documents end before the places `ends` of them."""
        begin = 0
        while len(ends) and self._writer.count + int(ends[-1]) - begin >= SHARD:
            full = int(np.searchsorted(ends, SHARD - self._writer.count + begin))
            end = int(ends[full])
            self._writer.extend(ids[begin:end], ends[: full + 1] - begin)
            begin, ends = end, ends[full + 1 :]
            self._writer.__exit__(None, None, None)
            self._open()
        self._writer.extend(ids[begin:], ends - begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._number > 0 and self._writer.count == 0:
            # The last document has just filled a shard.
            self._writer.drop()
            self._number -= 1
        else:
            self._writer.__exit__(kind, error, trace)

    @property
    def n(self) -> int:
        """Shards so far."""
        return self._number + 1

    def _open(self) -> None:
        self._number += 1
        name = f"{self.part}-{self._number:05d}"
        file = shard(self.folder, self.part, self._number)
        self._writer = StoreWriter(file, **self._about, place=name)
        self._writer.__enter__()


def shard(folder: Path, part: str, number: int) -> Path:
    """The file of a shard."""
    return folder / f"{part}-{number:05d}.tokens"


class Shards:
    """Stores one behind the other: `count` tokens of `documents` documents."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = stores
        self._begins = np.cumsum([0, *(len(store) for store in stores)])
        self.count = int(self._begins[-1])
        self.documents = sum(store.header.documents for store in stores)

    def __len__(self) -> int:
        return self.count

    def read(self, begin: int, end: int) -> NDArray[np.int64]:
        """Tokens from place `begin` to before `end`, or to the end of all."""
        parts = [
            store.tokens[max(0, begin - at) : end - at] for store, at in self._between(begin, end)
        ]
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

    def count_of(self, token: int) -> int:
        """How often a token comes."""
        return sum(
            int(np.count_nonzero(store.tokens[begin : begin + SPAN] == token))
            for store in self.stores
            for begin in range(0, len(store), SPAN)
        )

    def starts(self, begin: int, end: int) -> NDArray[np.int64]:
        """Places from `begin` to before `end` at which documents begin."""
        parts = []
        for store, at in self._between(begin, end):
            places = store.offsets[:-1]
            low, high = np.searchsorted(places, [begin - at, end - at])
            parts.append(places[low:high] + at)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each document."""
        parts = [np.diff(store.offsets) for store in self.stores]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def offsets(self) -> NDArray[np.int64]:
        """Place at which each document begins, and the end of the last."""
        parts = [
            store.offsets[:-1] + at for store, at in zip(self.stores, self._begins, strict=False)
        ]
        return np.concatenate([*parts, [self.count]])

    def _between(self, begin: int, end: int) -> list[tuple[Store, int]]:
        """Stores with a token in this range, and the place at which each begins."""
        first = max(0, int(np.searchsorted(self._begins, begin, side="right")) - 1)
        found = []
        for number in range(first, len(self.stores)):
            at = int(self._begins[number])
            if at >= end:
                break
            found.append((self.stores[number], at))
        return found


def open_shards(
    folder: Path,
    part: str,
    *,
    vocab_size: int,
    n: int,
    tokenizer: str | None = None,
    source: str | None = None,
) -> Shards:
    """The `n` shards of a part; RequestError names a bad one."""
    seen = _seen(folder)
    stores = []
    for number in range(n):
        file = shard(folder, part, number)
        known = seen.get(file.name) == _state(file)
        store = Store(
            file, vocab_size=vocab_size, tokenizer=tokenizer, source=source, scan=not known
        )
        if store.header.place not in ("", file.stem):
            raise refusal(file, f"it is {store.header.place} under another name")
        stores.append(store)
        if not known and store.bytes >= LARGE:
            seen[file.name] = _state(file)
            with contextlib.suppress(RunError), whole(folder / SEEN) as stream:
                stream.write(json.dumps(seen).encode())
    return Shards(stores)


SEEN = "read-through.json"
"""Size and time of large stores that were read through and found whole: not done again."""


def _seen(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / SEEN).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _state(file: Path) -> list[int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


def entropy(parts: Sequence[Shards]) -> float | None:
    """Entropy in nats of the targets' distribution (each token but the first of a document)."""
    counts = np.zeros(0, dtype=np.float64)
    for store in (store for part in parts for store in part.stores):
        mine = _counts(store.tokens)
        firsts = np.bincount(store.tokens[store.offsets[:-1]], minlength=len(mine))
        mine = mine - firsts
        size = max(len(counts), len(mine))
        counts = np.pad(counts, (0, size - len(counts))) + np.pad(mine, (0, size - len(mine)))
    if not counts.sum():
        return None
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _counts(tokens: NDArray[Any], span: int = 1 << 22) -> NDArray[np.float64]:
    """How often each id comes, without a copy of all."""
    found = np.zeros(0, dtype=np.int64)
    for begin in range(0, len(tokens), span):
        part = np.bincount(tokens[begin : begin + span], minlength=len(found))
        part[: len(found)] += found
        found = part
    return found.astype(np.float64)
