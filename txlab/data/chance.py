"""Random numbers that are a pure function of (seed, epoch, row): no generator, no state."""

import numpy as np
from numpy.typing import NDArray

from txlab.data.order import GOLDEN, MASK, mix

HELD_OUT = -1
"""The epoch of all rows that are not trained on: they are the same at every validation."""


def uniforms(n: int, *, seed: int, epoch: int, row: int) -> NDArray[np.float64]:
    """`n` numbers from 0 to below 1, the same for the same arguments on every machine."""
    key = mix(np.array([seed & MASK], dtype=np.uint64))
    for part in (epoch + 2, row + 1):
        key = mix(key + np.array([part * GOLDEN & MASK], dtype=np.uint64))
    places = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return (mix(mix(places + key) ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
