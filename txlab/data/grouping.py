"""Rows of like length together, as many in a step as its tokens allow."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from txlab.core.errors import RequestError
from txlab.data.order import GOLDEN, Order, rows_at

GROUPS = 32
"""Lengths are told apart in so many classes; within one, rows are shuffled each epoch."""


class Grouped(Order):
    """Steps of rows of like length: rows times the width of their class is at most `budget`.

    Rows stand by class, the longest first, and are cut into steps; the cuts are the same in each
    epoch, so that every epoch has as many steps and a step needs no step before it. What is new in
    each epoch is which rows of a class stand where, and the order of the steps. Every row comes
    once an epoch; one step, of the shortest rows, may have fewer tokens than fit.
    """

    def __init__(self, lengths: NDArray[np.int64], budget: int, seed: int) -> None:
        if not len(lengths):
            raise ValueError("no rows")
        self._seed = seed
        longest = int(lengths.max())
        if longest > budget:
            raise RequestError(
                f"data.batch_tokens={budget} is less than the longest row of {longest} tokens: "
                "raise it, or make model.context smaller."
            )
        grain = -(-longest // GROUPS)
        classes = -(-lengths // grain)
        self._rows = np.argsort(-classes, kind="stable")
        self.widths = np.minimum(classes[self._rows] * grain, longest)
        """Width that each row in this order is counted with."""
        self._cuts = self._cut(budget)
        self._classes = np.flatnonzero(np.diff(self.widths, prepend=0, append=0))
        self.n_steps = len(self._cuts) - 1
        self.epoch_steps = self.n_steps

    @property
    def step_rows(self) -> Fraction:
        """Rows of a step, on average."""
        return Fraction(len(self._rows), self.n_steps)

    def step(self, step: int) -> tuple[list[int], list[int]]:
        if step < 0:
            raise ValueError(f"step={step}")
        epoch = step // self.n_steps
        begin, end = self._span(step)
        places = np.arange(begin, end)
        first = np.searchsorted(self._classes, places, side="right") - 1
        rows = np.empty_like(places)
        for kind in np.unique(first).tolist():
            mine = first == kind
            low, high = self._classes[kind : kind + 2].tolist()
            seed = self._seed + (kind + 1) * GOLDEN
            within = rows_at(high - low, seed, epoch, places[mine] - low)
            rows[mine] = self._rows[low + within]
        return rows.tolist(), [epoch] * len(rows)

    def width(self, step: int) -> int:
        """Width that the rows of a step are counted with."""
        return int(self.widths[self._span(step)[0]])

    def _span(self, step: int) -> tuple[int, int]:
        epoch, number = divmod(step, self.n_steps)
        chosen = int(rows_at(self.n_steps, self._seed, epoch, np.array([number]))[0])
        return int(self._cuts[chosen]), int(self._cuts[chosen + 1])

    def _cut(self, budget: int) -> NDArray[np.int64]:
        cuts, n = [0], len(self._rows)
        while cuts[-1] < n:
            cuts.append(min(n, cuts[-1] + budget // int(self.widths[cuts[-1]])))
        return np.array(cuts)


def shared(n: int, rank: int, world: int, size: int) -> list[tuple[int, int]]:
    """(begin, end) of the micro-batches, of at most `size` of a step's `n` rows, of one rank.

    As many on each rank; where a rank has no row for one, begin = end.
    """
    most = -(-n // world)
    begin, end = rank * n // world, (rank + 1) * n // world
    cuts = [min(begin + i * size, end) for i in range(-(-most // size) + 1)]
    return list(pairwise(cuts))
