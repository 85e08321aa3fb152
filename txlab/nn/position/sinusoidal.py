"""Sinusoidal absolute positions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.position.position import Position, position


def sinusoids(
    positions: Int[Tensor, "#b t"], dim: int, theta: float = 10000.0
) -> Float[Tensor, "b t {dim}"]:
    """Channels 2i and 2i + 1 are sin and cos of position / theta^(2i / dim), in float32."""
    even = torch.arange(0, dim, 2, dtype=torch.float32, device=positions.device)
    angles = positions.unsqueeze(-1).float() * theta ** (-even / dim)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :dim]


@position("sinusoidal")
class Sinusoidal(Position):
    """Fixed sinusoids added to the embeddings (Vaswani et al. 2017, sections 3.4 and 3.5).

    Made on the fly in float32, so there is no table, no end and nothing for a cast to round.
    """

    @dataclass
    class Config(Position.Config):
        """Fields of the sinusoids."""

        theta: float = 10000.0
        """Base of the wavelengths, which run from 2 pi to 2 pi theta."""
        scale_embeddings: bool = True
        """Multiply the embeddings by sqrt(dim) first, as the paper does: small ones drown."""

        def __post_init__(self) -> None:
            self.require(self.theta > 0, "theta", "a number above 0")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.theta = config.theta
        self.scale = dims.dim**0.5 if config.scale_embeddings else 1.0

    def embed(
        self, x: Float[Tensor, "b t d"], positions: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        return x * self.scale + sinusoids(positions, x.shape[-1], self.theta).to(x.dtype)
