"""Post-norm."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from txlab.nn.residual.residual import Branch, Residual, residual


@residual("post")
class Post(Residual):
    """norm(x + branch(x)), branch after branch (Vaswani et al. 2017); no norm after the stack."""

    final_norm: ClassVar[bool] = False

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        for name, branch in branches.items():
            x = self.norms[name](x + self.leave(name, branch(x)))
        return x
