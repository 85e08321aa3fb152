"""Token ids on disk: one file a split, memory-mapped, refused unless it is whole and belongs here.

Layout, little-endian: 4096 bytes of header (8 bytes magic, JSON, spaces), `count` ids, padding to
8 bytes, `documents + 1` int64 offsets (where each document begins, and the end of the last).
"""

import array
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from txlab.core.errors import RequestError
from txlab.data.cache import whole

MAGIC = b"txlabtok"
HEADER = 4096
VERSION = 1


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
    version: int = VERSION


class StoreWriter:
    """Writes one store: `add` ids, `end` each document, leave the `with` block to finish it."""

    def __init__(self, file: Path, *, vocab_size: int, tokenizer: str, source: str) -> None:
        self.file = file
        self._tokenizer, self._source = tokenizer, source
        self._vocab_size = vocab_size
        self._dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self._offsets = array.array("q", [0])
        self._count = self._checksum = 0
        self._max_id = -1

    def __enter__(self) -> Self:
        self._context = whole(self.file)
        self._stream = self._context.__enter__()
        self._stream.write(b" " * HEADER)
        return self

    def add(self, ids: list[int]) -> None:
        """Append ids to the open document."""
        if not ids:
            return
        values = np.asarray(ids, dtype=np.int64)
        if values.min() < 0 or values.max() >= self._vocab_size:
            raise ValueError(
                f"ids from {values.min()} to {values.max()}, vocabulary {self._vocab_size}"
            )
        raw = values.astype(self._dtype).tobytes()
        self._stream.write(raw)
        self._checksum = zlib.crc32(raw, self._checksum)
        self._count += len(values)
        self._max_id = max(self._max_id, int(values.max()))

    def end(self) -> None:
        """Close the open document."""
        self._offsets.append(self._count)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if error is None:
            offsets = np.asarray(self._offsets, dtype="<i8").tobytes()
            self._stream.write(b"\0" * (-self._count * self._dtype.itemsize % 8) + offsets)
            header = Header(
                dtype=self._dtype.str,
                count=self._count,
                documents=len(self._offsets) - 1,
                max_id=self._max_id,
                checksum=zlib.crc32(offsets, self._checksum),
                tokenizer=self._tokenizer,
                source=self._source,
            )
            self._stream.seek(0)
            self._stream.write(MAGIC + json.dumps(asdict(header)).encode())
        return self._context.__exit__(kind, error, trace)


class Store:
    """A finished store: `tokens` [n] and `offsets` [documents + 1], read from the disk on demand.

    Opening checks everything once: RequestError, naming the file, where it is no store, truncated,
    changed, of another tokenizer or source, or holds an id outside of the vocabulary.
    """

    def __init__(
        self,
        file: Path,
        *,
        vocab_size: int,
        tokenizer: str | None = None,
        source: str | None = None,
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
        size, at = file.stat().st_size, HEADER + self.header.count * dtype.itemsize
        at += -at % 8
        expected = at + 8 * (self.header.documents + 1)
        if size != expected:
            raise refusal(file, f"it has {size} bytes, its header says {expected}")
        self.tokens = _mapped(file, dtype, HEADER, self.header.count)
        self.offsets = np.array(_mapped(file, np.dtype("<i8"), at, self.header.documents + 1))
        self._check(vocab_size)

    def _check(self, vocab_size: int) -> None:
        steps = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != self.header.count or (steps <= 0).any():
            raise refusal(self.file, "its document offsets do not cover its tokens")
        checksum, top, span = 0, -1, 1 << 24
        for start in range(0, len(self.tokens), span):
            part = self.tokens[start : start + span]
            checksum = zlib.crc32(part.tobytes(), checksum)
            top = max(top, int(part.max()))
        if (
            zlib.crc32(self.offsets.tobytes(), checksum) != self.header.checksum
            or top != self.header.max_id
        ):
            raise refusal(self.file, "its contents are not those that were written")
        if top >= vocab_size:
            raise refusal(self.file, f"it holds token id {top}, the vocabulary has {vocab_size}")

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
