"""Broken positional schemes."""

from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.core.config import Dims
from txlab.nn.position import Learned, Position, RoPE, Sinusoidal


@caught_by("tells_order", "positions 1 and 2")
@caught_by("works_inside_attention", "twice as far apart")
class DoesNothing(Position):
    """No position at all."""


@caught_by("shift_invariant", "shifted by 1")
class TurnsBySquares(RoPE):
    """The angle grows with the square of the position."""

    def prepare(self, positions: Tensor) -> Any:
        return super().prepare(positions * positions)


@caught_by("rotation_keeps_norms", "length after turning")
class Stretches(RoPE):
    """Turned vectors are longer."""

    def rotate(self, q: Tensor, k: Tensor, angles: Any) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k, angles)
        return q * 1.01, k


@caught_by("exact_in_bfloat16", "rotation in bfloat16")
class CastsItsFrequencies(RoPE):
    """Frequencies are a buffer, which a cast of the model rounds."""

    def __init__(self, config: RoPE.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        even = torch.arange(0, dims.head_dim, 2, dtype=torch.float32)
        self.register_buffer("frequencies", 10000.0 ** (-even / dims.head_dim), persistent=False)
        self.plain = RoPE(config, dims)

    def rotate(self, q: Tensor, k: Tensor, angles: Any) -> tuple[Tensor, Tensor]:
        turn = angles.unsqueeze(-1).to(self.frequencies.dtype) * self.frequencies
        cos, sin = turn.unsqueeze(1).cos().to(q.dtype), turn.unsqueeze(1).sin().to(q.dtype)

        def turned(x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        return turned(q), turned(k)

    def prepare(self, positions: Tensor) -> Any:
        return positions


@caught_by("restarts_with_documents", "second document")
@caught_by("padding_takes_no_position", "row of 4 tokens, padded left, on a full pass")
class CountsByItself(Sinusoidal):
    """The place in the row, whatever the positions say."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(x, torch.arange(x.shape[1])[None])


@caught_by("says_where_it_ends", "128 tokens raise IndexError")
class HidesItsEnd(Learned):
    """A table with an end that it does not tell."""

    def limit(self) -> int | None:
        return None


@caught_by("serves_grouped_heads", "one key head of four")
class TurnsByHead(RoPE):
    """Each key head of a set turns differently."""

    def rotate(self, q: Tensor, k: Tensor, angles: Any) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k, angles)
        return q, k * torch.linspace(1, 2, k.shape[1])[:, None, None].flip(0)
