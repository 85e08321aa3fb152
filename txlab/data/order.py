"""The order of the rows: a pure function of (rows, seed, epoch), the same on every machine."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
SORTED = 1 << 20
"""Rows at most whose whole order is made and kept, at 8 bytes a row for each of four epochs."""
ROUNDS = 8


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit numbers one to one (the finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@functools.lru_cache(maxsize=4)
def permutation(n: int, seed: int, epoch: int) -> NDArray[Any]:
    """The numbers 0 to n-1 in the order of epoch `epoch`, int64 [n]; read-only.

    Sorted by a hash instead of drawn from a generator: those may change with the library's version,
    and a resumed run must find its place again.
    """
    key = _key(seed, epoch)
    keys = mix(mix(np.arange(n, dtype=np.uint64) * np.uint64(GOLDEN) + key) ^ key)
    order = np.argsort(keys, kind="stable")
    order.flags.writeable = False
    return order


def rows_at(n: int, seed: int, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows at these places (0 to n-1) of the order of epoch `epoch`.

    Many rows are not sorted, which takes seconds and gigabytes, but permuted one by one.
    """
    if n <= SORTED:
        return permutation(n, seed, epoch)[places]
    return scattered(n, seed, epoch, places)


def scattered(n: int, seed: int, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """A permutation of 0 to n-1 at some places, without the others.

    A Feistel network permutes the numbers below the next power of two; what lands at n or above is
    permuted again until it does not (Black & Rogaway 2002), less than once on average.
    """
    bits = max(2, (n - 1).bit_length())
    low = np.uint64(bits // 2)
    masks = (np.uint64((1 << (bits - bits // 2)) - 1), np.uint64((1 << (bits // 2)) - 1))
    keys = mix(_key(seed, epoch) + np.arange(1, ROUNDS + 1, dtype=np.uint64) * np.uint64(GOLDEN))
    found = places.astype(np.uint64)
    left = np.arange(len(found))
    while len(left):
        values = found[left]
        high, rest = values >> low, values & masks[1]
        for number, key in enumerate(keys):
            if number % 2:
                rest = rest ^ (mix(high ^ key) & masks[1])
            else:
                high = high ^ (mix(rest ^ key) & masks[0])
        found[left] = (high << low) | rest
        left = left[found[left] >= n]
    return found.astype(np.int64)


def _key(seed: int, epoch: int) -> NDArray[np.uint64]:
    key = mix(np.array([seed & MASK], dtype=np.uint64))
    return mix(key + np.array([(epoch + 1) * GOLDEN & MASK], dtype=np.uint64))


def indices_of_step(n: int, batch_size: int, seed: int, step: int) -> list[int]:
    """Rows of step `step` (from 0). Epochs follow one another; a step may hold the seam of two."""
    return Shuffled(n, batch_size, seed).step(step)[0]


class Order:
    """Which rows each step holds: a pure function of the step."""

    epoch_steps: float
    """Steps of an epoch."""

    def step(self, step: int) -> tuple[list[int], list[int]]:
        """Rows of step `step` (from 0), and the epoch that each of them is in."""
        raise NotImplementedError


class Shuffled(Order):
    """`n` rows in a new order each epoch; epochs follow one another, also within a step."""

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        if n < 1 or batch_size < 1:
            raise ValueError(f"n={n}, batch_size={batch_size}")
        self._n, self._batch_size, self._seed = n, batch_size, seed
        self.epoch_steps = n / batch_size

    def step(self, step: int) -> tuple[list[int], list[int]]:
        if step < 0:
            raise ValueError(f"step={step}")
        places = step * self._batch_size + np.arange(self._batch_size)
        rows, epochs = drawn(self._n, self._seed, places)
        return rows.tolist(), epochs.tolist()


def drawn(
    n: int, seed: int, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows, and their epochs, at places of the endless stream of epochs of `n` rows."""
    epochs, within = np.divmod(places, n)
    rows = np.empty_like(places)
    for epoch in np.unique(epochs):
        mine = epochs == epoch
        rows[mine] = rows_at(n, seed, int(epoch), within[mine])
    return rows, epochs
