"""Token ids on disk: one file a split, memory-mapped, refused unless it is whole and belongs here.

Layout, little-endian: 4096 bytes of header (8 bytes magic, JSON, spaces), `count` ids, padding to
8 bytes, `documents + 1` int64 offsets (where each document begins, and the end of the last).
"""

import array
import contextlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from txlab.core.errors import RequestError
from txlab.data.cache import whole

MAGIC = b"txlabtok"
HEADER = 4096
VERSION = 1
SPAN = 1 << 22
"""Ids or offsets read at once."""


@dataclass(frozen=True)
class Header:
    """What a store says about itself."""

    dtype: str
    count: int
    documents: int
    max_id: int
    tokenizer: str
    """Fingerprint of the tokenizer."""
    source: str
    """What the ids were made of."""
    checksum: int
    place: str = ""
    """Which part of the data it is."""
    version: int = VERSION


class StoreWriter:
    """Writes one store: `add` ids, `end` each document, leave the `with` block to finish it."""

    def __init__(
        self, file: Path, *, vocab_size: int, tokenizer: str, source: str, place: str = ""
    ) -> None:
        self.file = file
        self.count = 0
        """Ids so far."""
        self._about: dict[str, Any] = {"tokenizer": tokenizer, "source": source, "place": place}
        self._vocab_size = vocab_size
        self._dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self._offsets = array.array("q", [0])
        self._checksum = 0
        self._max_id = -1

    def __enter__(self) -> Self:
        self._context = whole(self.file)
        self._stream = self._context.__enter__()
        self._stream.write(b" " * HEADER)
        return self

    def add(self, ids: Sequence[int]) -> None:
        """Append ids to the open document."""
        self.extend(np.asarray(ids, dtype=np.int64), np.empty(0, dtype=np.int64))

    def extend(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Append ids of consecutive documents, which end before the places `ends` of them."""
        self._offsets.frombytes((ends + self.count).astype("=i8").tobytes())
        if not len(ids):
            return
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self._vocab_size:
            raise ValueError(f"ids from {low} to {high}, vocabulary {self._vocab_size}")
        raw = ids.astype(self._dtype).tobytes()
        self._stream.write(raw)
        self._checksum = zlib.crc32(raw, self._checksum)
        self.count += len(ids)
        self._max_id = max(self._max_id, high)

    def end(self) -> None:
        """Close the open document."""
        self._offsets.append(self.count)

    def drop(self) -> None:
        """Leave without a file."""
        with contextlib.suppress(_Dropped):
            self._context.__exit__(_Dropped, _Dropped(), None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if error is None:
            offsets = np.asarray(self._offsets, dtype="<i8").tobytes()
            self._stream.write(b"\0" * (-self.count * self._dtype.itemsize % 8) + offsets)
            header = Header(
                dtype=self._dtype.str,
                count=self.count,
                documents=len(self._offsets) - 1,
                max_id=self._max_id,
                checksum=zlib.crc32(offsets, self._checksum),
                **self._about,
            )
            self._stream.seek(0)
            self._stream.write(MAGIC + json.dumps(asdict(header)).encode())
        return self._context.__exit__(kind, error, trace)


class _Dropped(Exception):
    """Ends a block whose file is not wanted."""


class Store:
    """A finished store: `tokens` [n] and `offsets` [documents + 1], read from the disk on demand.

    Opening checks everything: RequestError, naming the file, where it is no store, truncated,
    changed, of another tokenizer or source, or holds an id outside of the vocabulary. Without
    `scan` the contents themselves are taken to be those that were written.
    """

    def __init__(
        self,
        file: Path,
        *,
        vocab_size: int,
        tokenizer: str | None = None,
        source: str | None = None,
        scan: bool = True,
    ) -> None:
        self.file = file
        self.header = _header(file)
        dtype = np.dtype(self.header.dtype)
        for name, mine, wanted in (
            ("tokenizer", self.header.tokenizer, tokenizer),
            ("source", self.header.source, source),
        ):
            if wanted is not None and mine != wanted:
                raise refusal(
                    file, f"it was made of {name} {mine[:12]}, this run has {wanted[:12]}"
                )
        self.bytes, at = file.stat().st_size, HEADER + self.header.count * dtype.itemsize
        at += -at % 8
        expected = at + 8 * (self.header.documents + 1)
        if self.bytes != expected:
            raise refusal(file, f"it has {self.bytes} bytes, its header says {expected}")
        self.tokens = _mapped(file, dtype, HEADER, self.header.count)
        self.offsets = _mapped(file, np.dtype("<i8"), at, self.header.documents + 1)
        if self.header.max_id >= vocab_size:
            top = self.header.max_id
            raise refusal(file, f"it holds token id {top}, the vocabulary has {vocab_size}")
        if self.offsets[0] != 0 or self.offsets[-1] != self.header.count:
            raise refusal(self.file, "its document offsets do not cover its tokens")
        if scan:
            self._scan()

    def _scan(self) -> None:
        """Read all of it once, a part at a time."""
        for start in range(0, self.header.documents, SPAN):
            if (np.diff(self.offsets[start : start + SPAN + 1]) <= 0).any():
                raise refusal(self.file, "its document offsets do not cover its tokens")
        checksum, top = 0, -1
        for start in range(0, len(self.tokens), SPAN):
            part = self.tokens[start : start + SPAN]
            checksum = zlib.crc32(part.tobytes(), checksum)
            top = max(top, int(part.max()))
        for start in range(0, len(self.offsets), SPAN):
            part = self.offsets[start : start + SPAN]
            checksum = zlib.crc32(part.tobytes(), checksum)
        if checksum != self.header.checksum or top != self.header.max_id:
            raise refusal(self.file, "its contents are not those that were written")

    def __len__(self) -> int:
        return self.header.count


def refusal(file: Path, reason: str) -> RequestError:
    """The one line that says why a store is not read."""
    return RequestError(f"token store {file}: {reason}; delete it and run again.")


def _header(file: Path) -> Header:
    try:
        with open(file, "rb") as stream:
            raw = stream.read(HEADER)
    except OSError as error:
        raise refusal(file, f"it cannot be read ({error.strerror})") from error
    if not raw.startswith(MAGIC):
        raise refusal(file, "it is no token store")
    try:
        fields: dict[str, Any] = json.loads(raw.removeprefix(MAGIC))
        if fields.get("version") != VERSION:
            raise refusal(file, f"it has version {fields.get('version')}, expected {VERSION}")
        header = Header(**fields)
        counts = (header.count, header.documents)
        if header.dtype not in ("<u2", "<u4") or any(type(n) is not int or n < 0 for n in counts):
            raise ValueError(header)
    except (ValueError, TypeError, AttributeError) as error:
        raise refusal(file, "its header is damaged") from error
    return header


def _mapped(file: Path, dtype: np.dtype[Any], offset: int, count: int) -> np.ndarray:
    if count == 0:
        return np.empty(0, dtype)
    return np.memmap(file, dtype, mode="r", offset=offset, shape=(count,))
