"""Sandwich norm."""

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.norm.norm import Norm
from txlab.nn.residual.residual import Branch, Residual, residual


@residual("sandwich")
class Sandwich(Residual):
    """x + norm(branch(norm(x))): a norm before and after each branch (Gemma 2, 2024)."""

    def __init__(
        self,
        config: Residual.Config,
        dims: Dims,
        *,
        branches: Sequence[str],
        make_norm: Callable[[], Norm],
    ) -> None:
        super().__init__(config, dims, branches=branches, make_norm=make_norm)
        self.after = nn.ModuleDict({name: make_norm() for name in branches})

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        for name, branch in branches.items():
            x = x + self.leave(name, self.after[name](branch(self.norms[name](x))))
        return x
