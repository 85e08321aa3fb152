"""What is held out: a pure function of the documents or items, not of seed or order."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Reading = Callable[[], Iterable[str]]
"""Reads a text from its beginning, in parts."""
Marks = NDArray[np.uint64]
"""Digests of documents, [n, 2]: most significant half first."""


@dataclass(frozen=True)
class Split:
    """What is held out: whole documents, or the end of one where no document is small enough."""

    held_out: NDArray[np.bool_]
    """[n]: documents that are for validation; equal texts stay together."""
    cut: NDArray[np.float64]
    """[n]: the part of a document, from its end, that is for validation; 0: none."""

    @property
    def rule(self) -> str:
        """How it was split, in words."""
        if self.cut.any():
            return "the end of the longest document is held out"
        return "whole documents are held out" if self.held_out.any() else "nothing is held out"


def by_digest(
    items: Sequence[T], digest: Callable[[T], bytes], fraction: float
) -> tuple[list[T], list[T]]:
    """(training, held out), each in the order given: those with the lowest digests are held out.

    Items with the same digest stay together. Unless `fraction` is 0 one digest at least is held
    out, where there are two.
    """
    digests = sorted({digest(item) for item in items})
    n = min(max(1, round(fraction * len(digests))), len(digests) - 1) if fraction else 0
    held_out = set(digests[:n])
    return (
        [item for item in items if digest(item) not in held_out],
        [item for item in items if digest(item) in held_out],
    )


def digest(text: str) -> bytes:
    """A document's identity."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def marks(digests: bytes | bytearray) -> Marks:
    """Digests, one after another, as numbers that sort alike."""
    return np.frombuffer(bytes(digests), ">u8").astype(np.uint64).reshape(-1, 2)


def groups(found: Marks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """([n] number of each document's text, in the order of digests; the first document of each)."""
    order = np.lexsort((found[:, 1], found[:, 0]))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (found[order[1:]] != found[order[:-1]]).any(axis=1)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    return group, order[new]


def choose(found: Marks, sizes: NDArray[np.int64], fraction: float) -> Split:
    """Split documents of these digests and bytes so that about `fraction` is held out.

    Documents are taken in the order of their digests while they fit; first only those of at most
    an eighth of what is wanted, so that many kinds of text are measured. Where none fits, the
    smallest is held out if that is less than four times what is wanted; else the longest is cut.
    """
    n = len(found)
    nothing = Split(np.zeros(n, dtype=bool), np.zeros(n))
    if n == 0 or fraction == 0:
        return nothing
    group, first = groups(found)
    together = np.zeros(len(first), dtype=np.int64)
    np.add.at(together, group, sizes)
    wanted = fraction * int(together.sum())
    held_out = np.zeros(len(first), dtype=bool)
    taken = 0
    for largest in (wanted / 8, wanted):
        for number in np.flatnonzero(~held_out & (together <= largest)):
            if taken >= wanted:
                break
            size = int(together[number])
            if taken + size <= 1.25 * wanted:
                held_out[number] = True
                taken += size
    if not held_out.any():
        smallest = int(together.argmin())
        few = min(4 * wanted, int(together.sum()) / 2)
        if len(first) == 1 or together[smallest] > few:
            longest = len(first) - 1 - int(together[::-1].argmax())
            part = wanted / int(together[longest])
            return Split(nothing.held_out, np.where(group == longest, part, 0.0))
        held_out[smallest] = True
    return Split(held_out[group], nothing.cut)


def aligned(found: Marks, split: Split) -> Split:
    """A text that one source holds out is held out in all; one that is cut, is cut most in all."""
    group, first = groups(found)
    held_out = np.zeros(len(first), dtype=bool)
    cut = np.zeros(len(first))
    np.logical_or.at(held_out, group, split.held_out)
    np.maximum.at(cut, group, split.cut)
    return Split(held_out[group], np.where(held_out[group], 0.0, cut[group]))


def cut_at(text: str, fraction: float) -> int:
    """Where the last `fraction` of a text begins; after a line or a word, where one ends nearby."""
    return cut_parts(lambda: [text], fraction)[0]


def cut_parts(read: Reading, fraction: float) -> tuple[int, bool, bool]:
    """`cut_at` for a text that comes in parts each time it is read; is there text before, after?"""
    begin, end, n = -1, 0, 0
    for part in read():
        if begin < 0 and (inner := part.lstrip()):
            begin = n + len(part) - len(inner)
        if inner := part.rstrip():
            end = n + len(inner)
        n += len(part)
    target = end - max(1, round(fraction * (end - begin)))
    floor = max(begin + 1, target - target // 10)
    window = "".join(slices(read(), floor, target))
    place = target
    for mark in ("\n\n", "\n", " "):
        found = window.rfind(mark)
        if found >= 0:
            place = floor + found + len(mark)
            break
    return place, place > begin, place < end


def slices(parts: Iterable[str], begin: int, end: int | None) -> Iterator[str]:
    """The characters from `begin` to before `end` of a text that comes in parts."""
    n = 0
    for part in parts:
        piece = part[max(0, begin - n) : None if end is None else max(0, end - n)]
        n += len(part)
        if piece:
            yield piece
        if end is not None and n >= end:
            return
