"""Parallel branches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.norm.norm import Norm
from txlab.nn.residual.residual import Branch, Residual, residual


@residual("parallel")
class Parallel(Residual):
    """x plus the sum of all branches, each on the norm of the same x (Wang, Komatsuzaki 2021)."""

    @dataclass
    class Config(Residual.Config):
        """Fields of the parallel rule."""

        shared_norm: bool = True
        """One norm for all branches (GPT-J, PaLM); False: one for each (GPT-NeoX)."""

    def __init__(
        self, config: Config, dims: Dims, *, branches: Sequence[str], make_norm: Callable[[], Norm]
    ) -> None:
        norms = ("shared",) if config.shared_norm else branches
        super().__init__(config, dims, branches=branches, make_norm=make_norm, norm_names=norms)
        self.shared_norm = config.shared_norm

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        y = x
        shared = self.norms["shared"](x) if self.shared_norm else x
        for name, branch in branches.items():
            h = shared if self.shared_norm else self.norms[name](x)
            y = y + self.leave(name, branch(h))
        return y
