"""Sources in exact proportions: whose turn it is, and which of its rows."""

import functools
from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from txlab.core.errors import RequestError
from txlab.data.order import GOLDEN, Order, drawn

PERIOD = 100_000
"""Rows at most after which the turns repeat."""


def whole_weights(weights: Sequence[float]) -> list[int]:
    """The smallest whole numbers in the proportions of the weights, as they are written."""
    shares = [Fraction(str(weight)) for weight in weights]
    common = lcm(*(share.denominator for share in shares))
    found = [int(share * common) for share in shares]
    found = [number // gcd(*found) for number in found]
    if sum(found) > PERIOD:
        said = ", ".join(f"{weight:g}" for weight in weights)
        raise RequestError(
            f"data.mix: weights {said} are whole only as {':'.join(map(str, found))}, which repeat "
            f"after more than {PERIOD:,} rows; round them."
        )
    return found


def turns(weights: Sequence[int]) -> NDArray[np.int64]:
    """[sum of weights]: whose turn each row of a period is.

    Of the first n rows of the endless repetition a source has n * weight / sum of them, rounded up
    or down: among the sources that are behind enough, the one that must come soonest (Tijdeman
    1980, the chairman assignment problem).
    """
    return _turns(tuple(weights))


@functools.lru_cache(maxsize=4)
def _turns(weights: tuple[int, ...]) -> NDArray[np.int64]:
    total, k = sum(weights), len(weights)
    if k == 1:
        return np.zeros(total, dtype=np.int64)
    # All times total * (2k - 2), so that it is exact. A source is behind enough from 1 / (2k - 2)
    # of a row on, and must come before it is 1 - 1 / (2k - 2) behind.
    fine = 2 * k - 2
    owed = np.zeros(k, dtype=np.int64)
    gain = np.array(weights, dtype=np.int64)
    found = np.empty(total, dtype=np.int64)
    for n in range(total):
        owed += gain
        ready = fine * owed >= total
        left = ((fine - 1) * total - fine * owed) / gain
        chosen = int(np.where(ready, left, np.inf).argmin())
        owed[chosen] -= total
        found[n] = chosen
    found.flags.writeable = False
    return found


class Mixed(Order):
    """Rows of several sources, one source after another in one numbering, in exact proportions.

    Each source has epochs of its own, in which each of its rows comes once, in a new order. The
    epoch of the whole is as many rows as all sources have together.
    """

    def __init__(
        self, sizes: Sequence[int], weights: Sequence[float], batch_size: int, seed: int
    ) -> None:
        if not sizes or min(sizes) < 1 or batch_size < 1:
            raise ValueError(f"sizes={sizes}, batch_size={batch_size}")
        self._sizes, self._batch_size, self._seed = sizes, batch_size, seed
        self._weights = whole_weights(weights)
        self._bases = np.cumsum([0, *sizes])
        self._turns = turns(self._weights)
        self._nth = np.empty_like(self._turns)
        for source in range(len(sizes)):
            mine = self._turns == source
            self._nth[mine] = np.arange(mine.sum())
        self.epoch_steps = sum(sizes) / batch_size

    def step(self, step: int) -> tuple[list[int], list[int]]:
        if step < 0:
            raise ValueError(f"step={step}")
        places = step * self._batch_size + np.arange(self._batch_size)
        periods, within = np.divmod(places, len(self._turns))
        whose = self._turns[within]
        rows, epochs = np.empty_like(places), np.empty_like(places)
        for source in np.unique(whose).tolist():
            mine = whose == source
            nth = periods[mine] * self._weights[source] + self._nth[within[mine]]
            seed = self._seed + source * GOLDEN
            found, epochs[mine] = drawn(self._sizes[source], seed, nth)
            rows[mine] = self._bases[source] + found
        return rows.tolist(), epochs.tolist()

    def passes(self) -> list[float]:
        """How often each source is gone through in an epoch of the whole."""
        rows, total = sum(self._sizes), sum(self._weights)
        return [
            rows * weight / total / size
            for weight, size in zip(self._weights, self._sizes, strict=True)
        ]
