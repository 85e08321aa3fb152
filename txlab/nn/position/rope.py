"""Rotary positions: queries and keys turned by an angle proportional to their position."""

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.position.position import Position, position
from txlab.nn.position.scaling import Frequencies, attention_factor, check, scaled_frequencies
from txlab.nn.position.turn import Angles, rotation, turn


@position("rope")
class RoPE(Position):
    """Rotary embedding (Su et al. 2021): channel pair i turns by position * theta^(-2i / channels).

    Scores depend on relative positions only. Frequencies are made in float32 from the config in
    every forward pass; there is no buffer that a cast of the model could round.
    """

    @dataclass
    class Config(Frequencies):
        """Fields of the rotation."""

        interleaved: bool = False
        """Pair neighbouring channels (the paper, GPT-J) instead of the two halves (Llama, NeoX)."""
        partial: float = 1.0
        """Share of the head's channels that turns; the rest passes unchanged."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 < self.partial <= 1, "partial", "a share above 0 and at most 1")

    rotates: ClassVar[bool] = True

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.config, self.context = config, dims.context
        self.interleaved = config.interleaved
        self.channels = round(dims.head_dim * config.partial)
        self.rest = dims.head_dim - self.channels
        if self.channels < 2 or self.channels % 2:
            raise RequestError(
                f"model.pos=rope turns pairs of channels, but head_dim={dims.head_dim} times "
                f"partial={config.partial:g} gives {self.channels}: make that an even number."
            )
        check(config, self.channels, dims.context)
        self.gain = attention_factor(config, dims.context)
        if config.mscale_all_dim is not None:
            log = 0.1 * math.log(config.factor or 1.0)
            self.latent_gain = (log * config.mscale_all_dim + 1) ** 2

    def prepare(self, positions: Int[Tensor, "#b t"]) -> Angles:
        return rotation(
            positions,
            scaled_frequencies(self.config, self.channels, self.context, positions.device),
            rest=self.rest,
            interleaved=self.interleaved,
            gain=self.gain,
        )

    def rotate(
        self, q: Float[Tensor, "b h t k"], k: Float[Tensor, "b g t k"], angles: Angles
    ) -> tuple[Float[Tensor, "b h t k"], Float[Tensor, "b g t k"]]:
        angles = angles[0].to(q.dtype), angles[1].to(q.dtype)
        return (
            turn(q, angles, self.channels, self.interleaved),
            turn(k, angles, self.channels, self.interleaved),
        )
