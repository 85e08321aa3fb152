"""RMSNorm."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.nn.norm.norm import Norm, norm


@norm("rmsnorm")
class RMSNorm(Norm):
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019); statistics in float32."""

    @dataclass
    class Config(Norm.Config):
        """Fields of the RMS norm."""

        affine: bool = True
        """Learn a weight per channel."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.eps = config.eps
        self.shape = (dims.dim,)
        self.weight = nn.Parameter(torch.empty(dims.dim)) if config.affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1."""
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return F.rms_norm(x, self.shape, self.weight, self.eps)
