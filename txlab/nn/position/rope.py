"""Rotary positions: queries and keys turned by an angle proportional to their position."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.position.position import Position, position
from txlab.nn.position.turn import Angles, inverse_frequencies, rotation, turn


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
        """Base of the frequencies; a larger one turns slower and reaches farther."""
        interleaved: bool = False
        """Pair neighbouring channels (the paper, GPT-J) instead of the two halves (Llama, NeoX)."""
        partial: float = 1.0
        """Share of the head's channels that turns; the rest passes unchanged."""

        def __post_init__(self) -> None:
            self.require(self.theta > 0, "theta", "a number above 0")
            self.require(0 < self.partial <= 1, "partial", "a share above 0 and at most 1")

    rotates: ClassVar[bool] = True

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.theta = config.theta
        self.interleaved = config.interleaved
        self.channels = round(dims.head_dim * config.partial)
        self.rest = dims.head_dim - self.channels
        if self.channels < 2 or self.channels % 2:
            raise RequestError(
                f"model.pos=rope turns pairs of channels, but head_dim={dims.head_dim} times "
                f"partial={config.partial:g} gives {self.channels}: make that an even number."
            )

    def prepare(self, positions: Int[Tensor, "#b t"]) -> Angles:
        frequencies = inverse_frequencies(self.channels, self.theta, positions.device)
        return rotation(positions, frequencies, rest=self.rest, interleaved=self.interleaved)

    def rotate(
        self, q: Float[Tensor, "b h t k"], k: Float[Tensor, "b g t k"], angles: Angles
    ) -> tuple[Float[Tensor, "b h t k"], Float[Tensor, "b g t k"]]:
        angles = angles[0].to(q.dtype), angles[1].to(q.dtype)
        return (
            turn(q, angles, self.channels, self.interleaved),
            turn(k, angles, self.channels, self.interleaved),
        )
