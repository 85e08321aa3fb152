"""Which documents are held out: a pure function of their texts, not of seed or order."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """What is held out: whole documents, or the end of one where no document is small enough."""

    held_out: frozenset[bytes]
    """Digests of the documents that are for validation; equal texts stay together."""
    cut: bytes | None = None
    """Digest of the document whose end is for validation."""
    fraction: float = 0.0
    """Part of that document that is held out."""

    @property
    def rule(self) -> str:
        """How it was split, in words."""
        if self.cut is not None:
            return "the end of the longest document is held out"
        return "whole documents are held out" if self.held_out else "nothing is held out"

    def parts(self, text: str) -> Iterator[tuple[bool, str]]:
        """(held out?, text): the document itself, or its two parts."""
        mark = digest(text)
        if mark != self.cut:
            yield mark in self.held_out, text
            return
        place = cut_at(text, self.fraction)
        yield False, text[:place]
        yield True, text[place:]


def digest(text: str) -> bytes:
    """A document's identity."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def choose(documents: Iterable[tuple[bytes, int]], fraction: float) -> Split:
    """Split documents, given as (digest, bytes of text), so that about `fraction` is held out.

    Documents are taken in the order of their digests while they fit; first only those of at most
    an eighth of what is wanted, so that many kinds of text are measured. Where none fits, the
    smallest is held out if that is less than four times what is wanted; else the longest is cut.
    """
    sizes: dict[bytes, int] = {}
    for mark, size in documents:
        sizes[mark] = sizes.get(mark, 0) + size
    wanted = fraction * sum(sizes.values())
    if not sizes or fraction == 0:
        return Split(frozenset())
    held_out: set[bytes] = set()
    taken = 0
    for largest in (wanted / 8, wanted):
        for mark in sorted(sizes.keys() - held_out):
            if taken < wanted and sizes[mark] <= largest and taken + sizes[mark] <= 1.25 * wanted:
                held_out.add(mark)
                taken += sizes[mark]
    if not held_out:
        smallest = min(sizes, key=lambda mark: (sizes[mark], mark))
        if len(sizes) == 1 or sizes[smallest] > min(4 * wanted, sum(sizes.values()) / 2):
            longest = max(sizes, key=lambda mark: (sizes[mark], mark))
            return Split(frozenset(), longest, wanted / sizes[longest])
        held_out.add(smallest)
    return Split(frozenset(held_out))


def cut_at(text: str, fraction: float) -> int:
    """Where the last `fraction` of a text begins; after a line or a word, where one ends nearby."""
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    target = end - max(1, round(fraction * (end - begin)))
    floor = max(begin + 1, target - target // 10)
    for mark in ("\n\n", "\n", " "):
        place = text.rfind(mark, floor, target)
        if place >= 0:
            return place + len(mark)
    return target
