"""Which documents are wanted, and why the others are not."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from txlab.core.errors import RequestError


class Fate(IntEnum):
    """What becomes of a record."""

    train = 0
    val = 1
    cut = 2
    """Its end is for validation."""
    blank = 3
    """Nothing but white space."""
    unreadable = 4
    """Bad input, left out by data.on_error=skip."""
    below_min_chars = 5
    above_max_chars = 6
    unmatched = 7
    """data.matches is not in it."""
    duplicate = 8
    """Equal to one before, left out by data.dedup."""


@dataclass(frozen=True)
class Measure:
    """What is known of a document that was read once."""

    fate: Fate
    size: int
    """Bytes of the text."""
    mark: bytes
    """Digest of the text."""


@dataclass(frozen=True)
class Filter:
    """Bounds for the characters of a document, and a regular expression that is to be found."""

    min_chars: int = 0
    max_chars: int | None = None
    pattern: str | None = None

    def measure(self, parts: Iterable[str]) -> Measure:
        """Read a document; with a pattern it is held in memory as a whole."""
        hashed, chars, size, blank = hashlib.blake2b(digest_size=16), 0, 0, True
        kept: list[str] = []
        for part in parts:
            raw = part.encode()
            hashed.update(raw)
            chars, size = chars + len(part), size + len(raw)
            blank = blank and (not part or part.isspace())
            if self.pattern is not None:
                kept.append(part)
        return Measure(self._fate(chars, blank, kept), size, hashed.digest())

    def _fate(self, chars: int, blank: bool, kept: list[str]) -> Fate:
        if blank:
            return Fate.blank
        if chars < self.min_chars:
            return Fate.below_min_chars
        if self.max_chars is not None and chars > self.max_chars:
            return Fate.above_max_chars
        if self.pattern is not None and not re.search(self.pattern, "".join(kept)):
            return Fate.unmatched
        return Fate.train


def check_pattern(pattern: str | None) -> None:
    """RequestError where it is no regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise RequestError(
            f"data.matches={pattern}: no regular expression of Python ({error})."
        ) from error
