"""What rows are like: lengths of their documents, what is supervised, how much is padding."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlab.data.batch import IGNORE
from txlab.data.rows import Rows
from txlab.data.source import Data

LOOKED_AT = 2000
"""Rows that are looked at, evenly spread, where there are more."""


@dataclass(frozen=True)
class Statistics:
    """Figures of the rows of one part of the data."""

    rows: int
    """All there are."""
    seen: int
    """Those that the figures below are of."""
    tokens: int
    """Without padding."""
    supervised: int
    """Labels."""
    lengths: NDArray[np.int64]
    """Tokens of each document of each row."""
    documents: float
    """Documents a row, a mean."""

    @property
    def quantiles(self) -> tuple[int, int, int, int]:
        """Smallest, median, 90th percentile, largest of the lengths."""
        low, middle, most, high = np.quantile(self.lengths, [0, 0.5, 0.9, 1], method="lower")
        return int(low), int(middle), int(most), int(high)

    def histogram(self, bins: int = 8) -> list[tuple[int, int, int]]:
        """(from, to, how many lengths) in intervals of equal size, both ends included."""
        low, *_, high = self.quantiles
        size = max(1, -(-(high - low + 1) // bins))
        edges = range(low, high + size + 1, size)
        counts = [(a, min(b - 1, high), int(((self.lengths >= a) & (self.lengths < b)).sum()))
                  for a, b in pairwise(edges) if a <= high]  # fmt: skip
        return counts


def statistics(rows: Rows) -> Statistics | None:
    """Figures of rows of tokens; None where there are none, or rows hold something else."""
    n = len(rows)
    chosen = np.unique(np.linspace(0, n - 1, min(n, LOOKED_AT)).round().astype(int)).tolist()
    lengths: list[NDArray[np.int64]] = []
    tokens = supervised = lines = 0
    for index in chosen:
        batch: Any = rows.batch([index])
        if "tokens" not in batch:
            return None
        for row in range(len(batch["tokens"])):
            mine = list(_documents(batch, row))
            lengths.append(np.array(mine, dtype=np.int64))
            tokens += sum(mine)
            lines += 1
        if "labels" in batch:
            supervised += int((batch["labels"] != IGNORE).sum())
    if not lines:
        return None
    found = np.concatenate(lengths)
    return Statistics(n, len(chosen), tokens, supervised, found, len(found) / lines)


def _documents(batch: Any, row: int) -> Iterator[int]:
    """Tokens of each document of a row, padding left out."""
    valid = batch["valid"][row].numpy() if "valid" in batch else None
    n = len(batch["tokens"][row])
    if "documents" not in batch:
        yield n if valid is None else int(valid.sum())
        return
    numbers = batch["documents"][row].numpy()
    counts = np.bincount(numbers if valid is None else numbers[valid])
    yield from counts[counts > 0].tolist()


def padding(data: Data) -> float | None:
    """Share of the places of training batches that is padding, over some steps of the first epoch.

    None where batches hold no tokens.
    """
    batches, places, used, seen = data.step_batches(), 0, 0, 0
    for step in range(LOOKED_AT):
        for batch in batches.at(step):
            if "tokens" not in batch:
                return None
            size = batch["tokens"].numel()
            places += size
            used += int(batch["valid"].sum()) if "valid" in batch else size
            seen += len(batch["tokens"])
        if seen >= min(LOOKED_AT, len(data.train) * data.train.lines):
            break
    return 1 - used / places
