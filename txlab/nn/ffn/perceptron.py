"""What perceptrons share: linear layers in, a mix of their outputs, one linear layer out."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN


class Perceptron(FFN):
    """down(mix(each of `in_linears` of x)).

    All weights stand in these linears and `mix` has none of its own, so a mixture of experts can
    keep those of many as one tensor each.
    """

    in_linears: ClassVar[tuple[str, ...]] = ("up",)
    """Attributes of the linears from dim to hidden, in the order that `mix` takes their outputs."""

    def __init__(self, config: FFN.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.hidden = config.hidden or self.usual_hidden(dims.dim)
        for name in self.in_linears:
            setattr(self, name, nn.Linear(dims.dim, self.hidden, bias=config.bias))
        self.down = nn.Linear(self.hidden, dims.dim, bias=config.bias)

    @staticmethod
    def usual_hidden(dim: int) -> int:
        """Width of the hidden layer where the config leaves it open."""
        raise NotImplementedError

    def mix(self, *parts: Float[Tensor, "*b h"]) -> Float[Tensor, "*b h"]:
        """The hidden layer from the outputs of `in_linears`, element by element."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "*b d"], ctx: Context | None = None
    ) -> Float[Tensor, "*b d"]:
        return self.down(self.mix(*(getattr(self, name)(x) for name in self.in_linears)))
