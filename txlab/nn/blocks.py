"""Blocks of tokens that see one another: near ones, the first ones, and some drawn at random."""

from dataclasses import dataclass
from typing import overload

import torch
from jaxtyping import Bool, Int
from torch import Tensor

MASK32 = 0xFFFFFFFF


@dataclass(frozen=True)
class BlockGraph:
    """Which blocks of `size` tokens are joined (Zaheer et al. 2020): near, global, random.

    A pair of blocks is judged by itself, from the seed, the layer and the two numbers alone: it
    does not matter how long the row is or how it arrives. Edges go both ways; a causal mask keeps
    the earlier half.
    """

    size: int
    n_random: int
    """Blocks that each block draws among the earlier ones that are neither near nor global."""
    n_window: int
    """A block is joined to itself and the `n_window - 1` on each side."""
    n_global: int
    """The first blocks, joined to all."""
    seed: int = 0
    layer: int = 0

    def joined(self, i: Int[Tensor, "..."], j: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Whether blocks i and j are joined; any broadcastable numbers of blocks."""
        found = ((i - j).abs() < self.n_window) | (torch.minimum(i, j) < self.n_global)
        for turn in range(self.n_random):
            # A draw is a matter of one block; only the comparison is one of pairs.
            found = found | (self._drawn(i, turn) == j) | (self._drawn(j, turn) == i)
        return found

    def _drawn(self, i: Int[Tensor, "..."], turn: int) -> Int[Tensor, "..."]:
        """The earlier block that block i draws in that turn; -2: none."""
        first, size = self._stratum(i, turn)
        return (first + self._hash(i, turn) % size.clamp(min=1)).where(size > 0, -2)

    def earlier(self, i: int) -> list[int]:
        """Numbers of the blocks up to i that are joined to block i, in order."""
        found = {*range(min(self.n_global, i + 1)), *range(max(0, i - self.n_window + 1), i + 1)}
        for turn in range(self.n_random):
            first, size = self._stratum(i, turn)
            if size > 0:
                found.add(first + self._hash(i, turn) % size)
        return sorted(found)

    def joins_all(self, n_tokens: int) -> bool:
        """Whether nothing is left out among that many tokens."""
        n_blocks = -(-n_tokens // self.size)
        return n_blocks <= self.n_window + self.n_global + self.n_random

    @overload
    def _stratum(self, i: int, turn: int) -> tuple[int, int]: ...
    @overload
    def _stratum(self, i: Tensor, turn: int) -> tuple[Tensor, Tensor]: ...
    def _stratum(self, i: int | Tensor, turn: int) -> tuple[int | Tensor, int | Tensor]:
        """First block and number of blocks that draw `turn` of block i chooses from: as many equal
        parts as there are draws, so that no block is drawn twice and all are where they suffice."""
        n = i - self.n_window + 1 - self.n_global
        n = n.clamp(min=0) if isinstance(n, Tensor) else max(n, 0)
        first, end = n * turn // self.n_random, n * (turn + 1) // self.n_random
        return self.n_global + first, end - first

    @overload
    def _hash(self, i: int, turn: int) -> int: ...
    @overload
    def _hash(self, i: Tensor, turn: int) -> Tensor: ...
    def _hash(self, i: int | Tensor, turn: int) -> int | Tensor:
        """32 bits that look random; the same for a number and for a tensor of numbers."""
        x: int | Tensor = _mixed(_mixed(self.seed) ^ self.layer)
        return _mixed(_mixed(i ^ x) ^ turn)


@overload
def _mixed(x: int) -> int: ...
@overload
def _mixed(x: Tensor) -> Tensor: ...
def _mixed(x: int | Tensor) -> int | Tensor:
    """A bijection of 32 bits (xor-shifts and odd factors) in which each bit moves about half of the
    others; products stay below 2^63."""
    x = x & MASK32
    x = (x ^ (x >> 16)) * 0x7FEB352D & MASK32
    x = (x ^ (x >> 15)) * 0x045D9F3B & MASK32
    return x ^ (x >> 16)
