"""Small initialisation: variances from the width alone."""

from dataclasses import dataclass

from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.init.init import Init, Normal, Role, init


@init("small")
class SmallInit(Init):
    """N(0, sqrt(2 / (5 dim))), outputs N(0, 2 / (n_layers sqrt(dim))), biases 0.

    SmallInit (Nguyen, Salazar 2019) with the output layers of GPT-NeoX-20B (Black et al. 2022),
    whose code names them after Wang.
    """

    @dataclass
    class Config(Init.Config):
        """No fields: all follows from width and depth."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.std = (2 / (5 * dims.dim)) ** 0.5
        self.out_std = 2 / (dims.n_layers * dims.dim**0.5)

    def distribution(self, name: str, tensor: Tensor, role: Role, layer: int) -> Normal | None:
        match role:
            case "bias":
                return Normal(0.0)
            case "out":
                # Of one layer or two the formula would give more than the other matrices have.
                return Normal(min(self.out_std, self.std))
            case "embed" | "head" | "position" | "in":
                return Normal(self.std)
            case _:
                return None
