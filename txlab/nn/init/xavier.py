"""Glorot's initialisation, which the first transformers used."""

from dataclasses import dataclass

from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.init.init import Init, Normal, Role, Uniform, init


@init("xavier")
class XavierInit(Init):
    """Matrices of variance 2 gain^2 / (fan_in + fan_out) (Glorot, Bengio 2010), biases 0.

    Embeddings and positions are N(0, dim^-0.5), as in Vaswani et al.'s released code.
    """

    @dataclass
    class Config(Init.Config):
        """Fields of Glorot's initialisation."""

        gain: float = 1.0
        """Multiplies the standard deviation of matrices."""
        uniform: bool = True
        """Draw matrices uniformly; False: normally, with the same variance."""

        def __post_init__(self) -> None:
            self.require(self.gain > 0, "gain", "a number above 0")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.uniform, self.gain = config.uniform, config.gain

    def gain_of(self, name: str, role: Role) -> float:
        """What the standard deviation of a matrix is multiplied by."""
        return self.gain

    def distribution(
        self, name: str, tensor: Tensor, role: Role, layer: int
    ) -> Normal | Uniform | None:
        match role:
            case "bias":
                return Normal(0.0)
            case "embed" | "position":
                return Normal(self.dims.dim**-0.5)
            case "in" | "out" | "head":
                # The last two axes are [out, in], also of experts stacked in one tensor.
                std = self.gain_of(name, role) * (2 / sum(tensor.shape[-2:])) ** 0.5
                return Uniform(3**0.5 * std) if self.uniform else Normal(std)
            case _:
                return None
