"""ALiBi: attention scores fall with distance, at a rate of each head's own."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.position.position import Position, position


@position("alibi")
class ALiBi(Position):
    """Score minus slope times distance in tokens (Press et al. 2022); nothing is learned.

    Slopes of n heads, n a power of two, are 2^(-8/n), 2^(-16/n) ... 2^-8. Other counts take the
    slopes of the power of two p below, then every other one of 2p's, as the authors' code does.
    Both directions fall alike, for attention without a causal mask. There is no last position.
    """

    scores: ClassVar[bool] = True

    def __init__(self, config: Position.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.regular = 2 ** int(math.log2(dims.n_heads))

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return -self.slope(h) * (q - k).abs()

    def slope(self, h: Tensor) -> Tensor:
        """Rate of heads h in float32, whatever the model's dtype."""
        step = torch.where(h < self.regular, h + 1, h - self.regular + 0.5)
        return torch.exp2(step.float() * (-8 / self.regular))
