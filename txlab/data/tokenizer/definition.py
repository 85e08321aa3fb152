"""What byte-pair encoding is, as short as it can be said: the fast one is tested against this."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Pair = tuple[str, str]


def learn(words: Mapping[str, int], n: int, min_frequency: int = 1) -> list[Pair]:
    """The first `n` merges of words with counts (Sennrich et al. 2016).

    Each merge joins the pair of neighbours that occurs most often in all words, and is applied
    before the next is looked for. Of equally frequent pairs the one whose left, then right, symbol
    is the older wins: letters are as old as their place in the alphabet, merged ones are younger.
    """
    divided = {word: list(word) for word in words}
    age = {letter: i for i, letter in enumerate(sorted(set().union(*words)))}
    merges: list[Pair] = []
    while len(merges) < n:
        counts: Counter[Pair] = Counter()
        for word, symbols in divided.items():
            for pair in pairwise(symbols):
                counts[pair] += words[word]
        best = min(counts, key=lambda p: (-counts[p], age[p[0]], age[p[1]]), default=None)
        if best is None or counts[best] < min_frequency:
            break
        merges.append(best)
        age.setdefault("".join(best), len(age))
        divided = {word: joined(symbols, best) for word, symbols in divided.items()}
    return merges


def apply(word: str, merges: Sequence[Pair]) -> list[str]:
    """The symbols of a word: every merge, in the order in which they were learned."""
    symbols = list(word)
    for pair in merges:
        symbols = joined(symbols, pair)
    return symbols


def joined(symbols: Sequence[str], pair: Pair) -> list[str]:
    """The symbols with each occurrence of the pair made one, from left to right."""
    found: list[str] = []
    for symbol in symbols:
        if found and (found[-1], symbol) == pair:
            found[-1] += symbol
        else:
            found.append(symbol)
    return found
