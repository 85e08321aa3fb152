"""Rotary positions: queries and keys turned by an angle proportional to their position."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.position.position import Position, position

Angles = tuple[Tensor, Tensor]


def inverse_frequencies(channels: int, theta: float, device: torch.device) -> Float[Tensor, " f"]:
    """theta^(-2i / channels) for each pair i of channels, in float32."""
    even = torch.arange(0, channels, 2, dtype=torch.float32, device=device)
    return theta ** (-even / channels)


def rotation(positions: Int[Tensor, "b t"], frequencies: Float[Tensor, " f"]) -> Angles:
    """cos and sin [b 1 t f] of position times frequency, in float32."""
    angles = (positions.unsqueeze(-1).float() * frequencies).unsqueeze(1)
    return angles.cos(), angles.sin()


def turn(
    x: Float[Tensor, "b h t k"], angles: Angles, interleaved: bool
) -> Float[Tensor, "b h t k"]:
    """x with its pairs turned; a pair is (i, i + k/2), or (2i, 2i + 1) when interleaved."""
    cos, sin = (part.to(x.dtype) for part in angles)
    n = 2 * cos.shape[-1]
    turned, rest = (x, None) if n == x.shape[-1] else x.split((n, x.shape[-1] - n), dim=-1)
    a, b = turned.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else turned.chunk(2, dim=-1)
    pair = (a * cos - b * sin, b * cos + a * sin)
    out = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    return out if rest is None else torch.cat((out, rest), dim=-1)


@position("rope")
class RoPE(Position):
    """Rotary embedding (Su et al. 2021): channel pair i turns by position * theta^(-2i / channels).

    Scores depend on relative positions only. Frequencies are made in float32 from the config in
    every forward pass; there is no buffer that a cast of the model could round.
    """

    @dataclass
    class Config(Position.Config):
        """Fields of the rotation."""

        theta: float = 10000.0
        """Base of the frequencies; larger turns slower and reaches farther."""
        interleaved: bool = False
        """Pair neighbouring channels (the paper, GPT-J) instead of the two halves (Llama, NeoX)."""
        partial: float = 1.0
        """Share of the head's channels that turns; the rest passes unchanged."""

        def __post_init__(self) -> None:
            self.require(self.theta > 0, "theta", "a number above 0")
            self.require(0 < self.partial <= 1, "partial", "a share above 0 and at most 1")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.theta = config.theta
        self.interleaved = config.interleaved
        self.channels = int(dims.head_dim * config.partial)
        if self.channels < 2 or self.channels % 2:
            raise RequestError(
                f"model.pos=rope turns pairs of channels, but head_dim={dims.head_dim} times "
                f"partial={config.partial:g} gives {self.channels}: make that an even number."
            )

    def prepare(self, positions: Int[Tensor, "b t"]) -> Angles:
        return rotation(positions, inverse_frequencies(self.channels, self.theta, positions.device))

    def rotate(
        self, q: Float[Tensor, "b h t k"], k: Float[Tensor, "b g t k"], angles: Angles
    ) -> tuple[Float[Tensor, "b h t k"], Float[Tensor, "b g t k"]]:
        return turn(q, angles, self.interleaved), turn(k, angles, self.interleaved)
