"""The slot of normalisation layers."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot


class Norm(nn.Module):
    """Normalises each token's vector by itself: `forward(x[b t d]) -> [b t d]`."""

    @dataclass
    class Config(Component):
        """Fields shared by all norms."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__()

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        raise NotImplementedError


@dataclass
class Divides(Norm.Config):
    """Fields shared by norms that divide by a root of statistics."""

    eps: float = 1e-5
    """Added to the variance (mean square) before the root."""

    def __post_init__(self) -> None:
        self.require(self.eps > 0, "eps", "a number above 0")


norm = Slot("model.norm", Norm, doc="Normalises each token's vector.")
