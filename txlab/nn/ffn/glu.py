"""Gated perceptrons: one linear layer's output, through a nonlinearity, scales another's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.nn.ffn.activation import gelu_tanh
from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.ffn.perceptron import Perceptron


class GLU(Perceptron):
    """down(act(gate(x)) * up(x)); options choose the nonlinearity."""

    in_linears: ClassVar[tuple[str, ...]] = ("gate", "up")
    activation: Callable[[Tensor], Tensor]

    @staticmethod
    def usual_hidden(dim: int) -> int:
        """8/3 dim, rounded up to a multiple of 64: the weights of an MLP of 4 dim."""
        return -(-8 * dim // (3 * 64)) * 64

    def mix(self, *parts: Float[Tensor, "*b h"]) -> Float[Tensor, "*b h"]:
        gate, up = parts
        return self.activation(gate) * up


@ffn("swiglu")
class SwiGLU(GLU):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020); hidden is 8/3 dim by default."""

    activation = staticmethod(F.silu)

    @dataclass
    class Config(FFN.Config):
        """Fields of the gated perceptron."""


@ffn("geglu")
class GEGLU(GLU):
    """down(gelu(gate(x)) * up(x)) (Shazeer 2020); hidden is 8/3 dim by default."""

    @dataclass
    class Config(FFN.Config):
        """Fields of the perceptron with a GELU gate."""

        approximate: bool = False
        """Take GELU by its tanh approximation (Gemma)."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.activation = gelu_tanh if config.approximate else F.gelu


@ffn("reglu")
class ReGLU(GLU):
    """down(relu(gate(x)) * up(x)) (Shazeer 2020); hidden is 8/3 dim by default."""

    activation = staticmethod(F.relu)

    @dataclass
    class Config(FFN.Config):
        """Fields of the perceptron with a ReLU gate."""
