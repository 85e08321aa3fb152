"""The two-layer perceptron."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.ffn.activation import ACTIVATIONS, Activation
from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.ffn.perceptron import Perceptron


@ffn("mlp")
class MLP(Perceptron):
    """down(act(up(x))) (Vaswani et al. 2017, section 3.3); hidden is 4 times dim by default."""

    @dataclass
    class Config(FFN.Config):
        """Fields of the perceptron."""

        activation: Activation = Activation.gelu
        """Nonlinearity between the two layers."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.activation = ACTIVATIONS[config.activation]

    @staticmethod
    def usual_hidden(dim: int) -> int:
        return 4 * dim

    def mix(self, *parts: Float[Tensor, "*b h"]) -> Float[Tensor, "*b h"]:
        (up,) = parts
        return self.activation(up)
