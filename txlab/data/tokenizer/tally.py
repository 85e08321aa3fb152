"""Pieces of texts counted in bounded memory: what a vocabulary is learned from."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space, as the library's patterns understand it; Python's \\s has more."""
UNIT = re.compile(rf" ?[^{SPACE}]+|[{SPACE}]{{1,48}}(?![^{SPACE}])|[{SPACE}]{{1,48}}")
"""A word with the space before it, or white space: no piece reaches beyond one."""
LONG = 64
"""Letters of a unit above which it is cut at once: text may have no white space at all."""
BATCH = 1 << 16
"""Units counted at once. Places where rare pieces go depend on it, not on how texts are divided."""
ROOM = 14 << 20
"""Bytes that different pieces may take; learning from them takes about 80 times as much memory."""
OVERHEAD = 16
"""Bytes that a piece counts beside its text."""


class Tally:
    """Counts the pieces of texts; exactly, as long as different ones take less than `room` bytes.

    Beyond, each further doubling of `1 << level` halves the pieces that occur only once: a piece
    that occurs n times is kept with probability n / 2^level, by a hash of its text, and counts
    2^level if that is more. So frequent pieces stay exact, rare ones are a sample that stands for
    all, and the result depends on the texts alone, not on the way they are divided into files.
    """

    def __init__(self, cut: Callable[[str], list[str]], *, room: int = ROOM) -> None:
        """`cut` divides a unit into pieces; a piece again is cut into itself alone."""
        self._cut = cut
        self._room = room
        self._units: Counter[str] = Counter()
        self._waiting: list[str] = []
        self._size = 0
        self.level = 0
        self.letters: set[str] = set()
        """Characters of pieces that were left out."""
        self.bytes = 0
        """Bytes of all texts."""

    def add(self, text: str) -> None:
        """Count a text: a document or a part of one that ends before white space."""
        self.bytes += len(text.encode())
        units = UNIT.findall(text)
        if max(map(len, units), default=0) > LONG:
            units = [p for u in units for p in (self._cut(u) if len(u) > LONG else (u,))]
        self._waiting += units
        while len(self._waiting) >= BATCH:
            self._count(self._waiting[:BATCH])
            del self._waiting[:BATCH]

    def pieces(self) -> Iterator[tuple[str, int]]:
        """(piece, count) of what was kept; a piece may come several times."""
        self._count(self._waiting)
        self._waiting = []
        if self.level:
            self._thin()
        for unit, n in self._units.items():
            for piece in self._cut(unit):
                yield piece, max(n, 1 << self.level)

    def _count(self, units: Iterable[str]) -> None:
        before = len(self._units)
        self._units.update(units)
        fresh = islice(reversed(self._units), len(self._units) - before)
        self._size += sum(_size(unit) for unit in fresh)
        if self._size > self._room:
            self._thin()
            while self._size > self._room // 2:
                self.level += 1
                self._thin()

    def _thin(self) -> None:
        """Leave out what the level does not keep."""
        kept = {u: n for u, n in self._units.items() if _stays(u, n, self.level)}
        for unit in self._units.keys() - kept.keys():
            self.letters.update(unit)
        self._units = Counter(kept)
        self._size = sum(map(_size, kept))


def _size(unit: str) -> int:
    return len(unit.encode()) + OVERHEAD


def _stays(unit: str, n: int, level: int) -> bool:
    """Whether a unit that occurs `n` times is kept: always from 2^level on, below by its hash."""
    if n >> level:
        return True
    place = int.from_bytes(hashlib.blake2b(unit.encode(), digest_size=8).digest())
    return place < n << (64 - level)
