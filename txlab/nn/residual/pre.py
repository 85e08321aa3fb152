"""Pre-norm."""

from jaxtyping import Float
from torch import Tensor

from txlab.nn.residual.residual import Branch, Residual, residual


@residual("pre")
class Pre(Residual):
    """x + branch(norm(x)), branch after branch; the stack ends with a norm (Xiong et al. 2020)."""

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        for name, branch in branches.items():
            x = x + self.leave(name, branch(self.norms[name](x)))
        return x
