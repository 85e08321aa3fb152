"""Long texts in parts that give the same ids, for tokenizers whose rules are not ours."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

SPAN = 1 << 18
"""Characters of a part, about."""
NEAR = 256
"""Characters on either side of a place that are looked at to judge it."""
TRIES = 64
"""Places that are judged before a longer part is taken."""


class Cutter:
    """Cuts where the library's own first steps, normaliser and pre-tokenizer, have a border anyway.

    A place is judged by its surroundings: both sides of it, taken by themselves, must become the
    same words as together. A text without any such place stays whole, as does every text where
    there is no pre-tokenizer.
    """

    def __init__(self, library: "Library") -> None:
        self._library = library

    def parts(self, text: str) -> Iterator[str]:
        start = 0
        end = SPAN if self._library.pre_tokenizer is not None else len(text)
        while end + NEAR <= len(text):  # so that no judgement depends on what may follow
            place = next(filter(lambda p: self._border(text, p), _places(text, end)), None)
            if place is None or place <= start:
                end += SPAN
                continue
            yield text[start:place]
            start = place
            end = start + SPAN
        yield text[start:]

    def _border(self, text: str, place: int) -> bool:
        left, right = text[max(0, place - NEAR) : place], text[place : place + NEAR]
        return self._words(left) + self._words(right) == self._words(left + right)

    def _words(self, text: str) -> list[str]:
        normaliser = self._library.normalizer
        text = text if normaliser is None else normaliser.normalize_str(text)
        return [word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(text)]  # pyright: ignore


def _places(text: str, end: int) -> Iterator[int]:
    """Places before `end`, the nearest first: before spaces after letters, then between kinds."""
    near = range(end - 1, max(0, end - SPAN // 2), -1)
    found = 0
    for place in near:
        if text[place] == " " and text[place - 1].isalpha():
            yield place
            if (found := found + 1) == TRIES // 2:
                break
    for place in near:
        if text[place].isalnum() != text[place - 1].isalnum():
            yield place
            if (found := found + 1) == TRIES:
                break
