"""Dynamic tanh: a norm's shape without its statistics."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.norm.norm import Norm, norm


@norm("dyt")
class DyT(Norm):
    """weight * tanh(alpha x) + bias with one learned alpha (Zhu et al. 2025); no statistics."""

    @dataclass
    class Config(Norm.Config):
        """Fields of the tanh."""

        alpha: float = 0.5
        """Where the slope alpha starts; wide models want less (the paper's section 7)."""
        affine: bool = True
        """Learn a weight per channel (and a bias, where `bias` says so)."""
        bias: bool = True
        """Learn a bias per channel; nothing without `affine`."""

        def __post_init__(self) -> None:
            self.require(self.alpha > 0, "alpha", "a number above 0")

    exempt: ClassVar[dict[str, str]] = {
        "forgets_scale": "it squashes large numbers instead of dividing by their size",
        "starts_at_unit_scale": "tanh bounds the output by 1; the weight learns the scale",
    }

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.start = config.alpha
        self.alpha = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(dims.dim)) if config.affine else None
        self.bias = nn.Parameter(torch.empty(dims.dim)) if config.affine and config.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """alpha as configured, weight 1, bias 0."""
        nn.init.constant_(self.alpha, self.start)
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        y = torch.tanh(self.alpha * x)
        if self.weight is not None:
            y = y * self.weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)
