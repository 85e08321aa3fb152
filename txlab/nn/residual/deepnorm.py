"""DeepNorm: post-norm that stands a thousand layers."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.norm.norm import Norm
from txlab.nn.residual.residual import Branch, Residual, residual


@residual("deepnorm")
class DeepNorm(Residual):
    """norm(alpha x + branch(x)), alpha = (2 n_layers)^(1/4); made for model.init=deepnorm.

    Wang et al. 2022, the case of an encoder or a decoder alone; no norm after the stack.
    """

    final_norm: ClassVar[bool] = False

    def __init__(
        self,
        config: Residual.Config,
        dims: Dims,
        *,
        branches: Sequence[str],
        make_norm: Callable[[], Norm],
    ) -> None:
        super().__init__(config, dims, branches=branches, make_norm=make_norm)
        self.alpha = (2 * dims.n_layers) ** 0.25

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        for name, branch in branches.items():
            x = self.norms[name](self.alpha * x + self.leave(name, branch(x)))
        return x
