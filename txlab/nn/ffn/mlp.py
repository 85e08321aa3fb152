"""The two-layer perceptron."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN, ffn


class Activation(StrEnum):
    """Nonlinearity between two linear layers."""

    gelu = "gelu"
    """x times the normal distribution function (Hendrycks and Gimpel 2016), exact."""
    gelu_tanh = "gelu_tanh"
    """Its tanh approximation (GPT-2)."""
    relu = "relu"
    relu2 = "relu2"
    """relu squared (So et al. 2021, Primer)."""


def relu2(x: Tensor) -> Tensor:
    """max(x, 0)^2."""
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.gelu: F.gelu,
    Activation.gelu_tanh: gelu_tanh,
    Activation.relu: F.relu,
    Activation.relu2: relu2,
}


@ffn("mlp")
class MLP(FFN):
    """down(act(up(x))) (Vaswani et al. 2017, section 3.3); hidden is 4 times dim by default."""

    @dataclass
    class Config(FFN.Config):
        """Fields of the perceptron."""

        activation: Activation = Activation.gelu
        """Nonlinearity between the two layers."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        hidden = config.hidden or 4 * dims.dim
        self.up = nn.Linear(dims.dim, hidden, bias=config.bias)
        self.down = nn.Linear(hidden, dims.dim, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(
        self, x: Float[Tensor, "*b d"], ctx: Context | None = None
    ) -> Float[Tensor, "*b d"]:
        return self.down(self.activation(self.up(x)))
