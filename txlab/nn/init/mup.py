"""Maximal update parametrisation, its part at the start."""

from dataclasses import dataclass

from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.init.init import Init, Normal, Role, init


@init("mup")
class MuPInit(Init):
    """gpt2 at width `base_dim`; wider, matrices shrink by the root and logits by the width.

    Yang et al. 2022, table 8: hidden matrices have variance proportional to 1 / width, the head's
    input is multiplied by base_dim / dim, embedding and head keep their variance, so a tied head
    fits. Widen a model by more heads at the same head_dim: scores keep their 1 / sqrt(head_dim).
    Rates are the other half: optim.scale=mup multiplies those of hidden matrices (Adam's by
    base_dim / dim), and `show coordinates` tells whether all of it holds.
    """

    @dataclass
    class Config(Init.Config):
        """Fields of the parametrisation."""

        base_dim: int = 256
        """Width of the model whose hyper-parameters are taken over; there, nothing is scaled."""
        std: float = 0.02
        """Standard deviation of every matrix at that width."""

        def __post_init__(self) -> None:
            self.require(self.base_dim > 0, "base_dim", "a number above 0")
            self.require(self.std > 0, "std", "a number above 0")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.std = config.std
        self.wider = dims.dim / config.base_dim

    @property
    def logit_scale(self) -> float:
        return 1 / self.wider

    def distribution(self, name: str, tensor: Tensor, role: Role, layer: int) -> Normal | None:
        match role:
            case "bias":
                return Normal(0.0)
            case "embed" | "head" | "position":
                return Normal(self.std)
            case "in":
                return Normal(self.std * self.wider**-0.5)
            case "out":
                return Normal(self.std * (self.wider * 2 * self.dims.n_layers) ** -0.5)
            case _:
                return None
