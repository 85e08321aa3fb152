"""What the library's trainers are fed: pieces that are counted already, an alphabet that fits."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from txlab.core.errors import RequestError

PRIVATE = range(0xF0000, 0x10FFFE)
"""Code points without meaning, one of which no piece holds: it stands between pieces."""
BATCH = 1 << 20
"""Letters handed to the library at once."""


def learn(model: Any, trainer: Any, counts: Mapping[str, int]) -> dict[str, Any]:
    """The fields of the library's model after training on these pieces, as in tokenizer.json.

    The library counts pieces by itself; here it gets each as often as it occurs, so that its
    memory depends on the different ones only.
    """
    from tokenizers import Tokenizer as Library
    from tokenizers import pre_tokenizers

    used = set().union(*counts)
    mark = next(chr(code) for code in PRIVATE if chr(code) not in used)
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(mark)  # pyright: ignore[reportAttributeAccessIssue]
    library.train_from_iterator(_repeated(counts, mark), trainer)
    return json.loads(library.to_str())["model"]


def _repeated(counts: Mapping[str, int], mark: str) -> Iterator[str]:
    waiting: list[str] = []
    size = 0
    for piece, count in counts.items():
        one, left = piece + mark, count
        while left:
            n = min(left, max(1, BATCH // len(one)))
            waiting.append(one * n)
            size += n * len(one)
            left -= n
            if size >= BATCH:
                yield "".join(waiting)
                waiting, size = [], 0
    yield "".join(waiting)


def alphabet(counts: Mapping[str, int], also: set[str], most: int | None, room: int) -> list[str]:
    """The characters of the pieces and of `also`, at most `most`, the most frequent first.

    RequestError where the vocabulary has no `room` for them.
    """
    found: Counter[str] = Counter(dict.fromkeys(sorted(also), 1))
    for piece, n in counts.items():
        for letter in piece:
            found[letter] += n
    chosen = sorted(found, key=lambda c: (-found[c], c))[:most]
    if len(chosen) > room:
        raise RequestError(
            f"the text has {len(chosen):,} different characters, the vocabulary has room for "
            f"{max(room, 0):,}: raise tokenizer.vocab_size, or keep only the most frequent ones "
            f"with tokenizer.alphabet={max(room // 2, 1)}."
        )
    return chosen


def within(counts: Mapping[str, int], letters: set[str]) -> dict[str, int]:
    """The parts of the pieces between characters that are not among `letters`."""
    if set().union(*counts) <= letters:
        return dict(counts)
    kept: Counter[str] = Counter()
    for piece, n in counts.items():
        for inside, part in groupby(piece, letters.__contains__):
            if inside:
                kept["".join(part)] += n
    return kept
