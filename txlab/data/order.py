"""The order of the rows: a pure function of (rows, seed, epoch), the same on every machine."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


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
    key = mix(np.array([seed & MASK], dtype=np.uint64))
    key = mix(key + np.array([(epoch + 1) * GOLDEN & MASK], dtype=np.uint64))
    keys = mix(mix(np.arange(n, dtype=np.uint64) * np.uint64(GOLDEN) + key) ^ key)
    order = np.argsort(keys, kind="stable")
    order.flags.writeable = False
    return order


def indices_of_step(n: int, batch_size: int, seed: int, step: int) -> list[int]:
    """Rows of step `step` (from 0). Epochs follow one another; a step may hold the seam of two."""
    if n < 1 or batch_size < 1 or step < 0:
        raise ValueError(f"n={n}, batch_size={batch_size}, step={step}")
    found: list[int] = []
    start, left = step * batch_size, batch_size
    while left:
        epoch, place = divmod(start, n)
        part = permutation(n, seed, epoch)[place : place + left]
        found.extend(part.tolist())
        start, left = start + len(part), left - len(part)
    return found
