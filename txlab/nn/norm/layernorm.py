"""LayerNorm."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.nn.norm.norm import Divides, Norm, norm


@norm("layernorm")
class LayerNorm(Norm):
    """(x - mean) / sqrt(var + eps) * weight + bias (Ba et al. 2016); statistics in float32."""

    @dataclass
    class Config(Divides):
        """Fields of the layer norm."""

        affine: bool = True
        """Learn a weight per channel (and a bias, where `bias` says so)."""
        bias: bool = True
        """Learn a bias per channel; nothing without `affine`."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.eps = config.eps
        self.shape = (dims.dim,)
        self.weight = nn.Parameter(torch.empty(dims.dim)) if config.affine else None
        self.bias = nn.Parameter(torch.empty(dims.dim)) if config.affine and config.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
