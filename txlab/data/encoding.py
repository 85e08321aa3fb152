"""Documents to ids, by the library's threads; the result does not depend on how many there are."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from txlab.data.tokenizer.tokenizer import Tokenizer

BATCH = min(max(os.cpu_count() or 1, 4) << 18, 1 << 23)
"""Characters tokenised at once: about 100 bytes of memory each, for two batches."""
THREADS = 2
"""Batches under way: one is turned into arrays while the library works on the other."""


@dataclass(frozen=True)
class Document:
    """A document, or a part that is treated like one."""

    source: int
    held_out: bool
    parts: Iterable[str]
    """Its text, in order; read once, before the next document."""


@dataclass
class _Batch:
    texts: list[str] = field(default_factory=list)
    slots: list[tuple[int, bool]] = field(default_factory=list)
    """Source and side of each text."""
    begins: list[bool] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    """Whether a document begins or ends with the text."""
    length: int = 0

    def add(self, text: str, slot: tuple[int, bool], begins: bool, ends: bool) -> None:
        self.texts.append(text)
        self.slots.append(slot)
        self.begins.append(begins)
        self.ends.append(ends)
        self.length += len(text)


@dataclass(frozen=True)
class Encoded:
    """Ids of one source and side, from consecutive documents."""

    source: int
    held_out: bool
    ids: NDArray[np.uint32]
    ends: NDArray[np.int64]
    """Places behind the documents that end here."""
    bytes: int
    """Of the text."""


def pieces(tokenizer: Tokenizer, parts: Iterable[str]) -> Iterator[str]:
    """A text that comes in parts, in the tokenizer's own pieces; at least one, maybe empty."""
    rest = ""
    for part in parts:
        # All pieces but the last stay what they are, whatever follows.
        *done, rest = tokenizer.pieces(rest + part if rest else part)
        yield from done
    yield rest


def encoded(tokenizer: Tokenizer, documents: Iterable[Document]) -> Iterator[list[Encoded]]:
    """`<bos> text <eos>` of every document, in order, in batches."""
    waiting: deque[Future[list[Encoded]]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for batch in _batches(tokenizer, documents):
                waiting.append(pool.submit(_encode, tokenizer, batch))
                if len(waiting) > THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _batches(tokenizer: Tokenizer, documents: Iterable[Document]) -> Iterator[_Batch]:
    batch = _Batch()
    for document in documents:
        slot, begins, before = (document.source, document.held_out), True, None
        for piece in pieces(tokenizer, document.parts):
            if before is not None:
                batch.add(before, slot, begins, False)
                begins = False
            before = piece
            if batch.length >= BATCH:
                yield batch
                batch = _Batch()
        batch.add(before or "", slot, begins, True)
    if batch.texts:
        yield batch


def _encode(tokenizer: Tokenizer, batch: _Batch) -> list[Encoded]:
    ids: dict[tuple[int, bool], list[int]] = {}
    ends: dict[tuple[int, bool], list[int]] = {}
    sizes: dict[tuple[int, bool], int] = {}
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    for number, found in enumerate(tokenizer.encode_batch(batch.texts)):
        slot = batch.slots[number]
        mine = ids.setdefault(slot, [])
        if batch.begins[number] and bos is not None:
            mine.append(bos)
        mine.extend(found)
        if batch.ends[number]:
            mine.append(eos)
            ends.setdefault(slot, []).append(len(mine))
        sizes[slot] = sizes.get(slot, 0) + len(batch.texts[number].encode())
    return [
        Encoded(
            *slot, np.array(mine, np.uint32), np.array(ends.get(slot, []), np.int64), sizes[slot]
        )
        for slot, mine in ids.items()
    ]
