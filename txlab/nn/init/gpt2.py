"""The initialisation of GPT-2."""

from dataclasses import dataclass

from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.init.init import Init, Normal, Role, init


@init("gpt2")
class GPT2Init(Init):
    """N(0, 0.02), positions N(0, 0.01), biases 0, residual outputs divided by sqrt(2 n_layers).

    Radford et al. 2019, GPT-2: 0.02 and 0.01 stand in the released code (openai/gpt-2,
    src/model.py), the depth scaling only in the paper (section 2.3).
    """

    @dataclass
    class Config(Init.Config):
        """Fields of the GPT-2 initialisation."""

        std: float = 0.02
        """Standard deviation of embeddings, head and linear layers."""
        position_std: float = 0.01
        """Standard deviation of learned positions."""

        def __post_init__(self) -> None:
            self.require(self.std > 0, "std", "a number above 0")
            self.require(self.position_std > 0, "position_std", "a number above 0")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.std = config.std
        self.position_std = config.position_std

    def distribution(self, name: str, tensor: Tensor, role: Role, layer: int) -> Normal | None:
        match role:
            case "bias":
                return Normal(0.0)
            case "position":
                return Normal(self.position_std)
            case "out":
                return Normal(self.std * (2 * self.dims.n_layers) ** -0.5)
            case "embed" | "head" | "in":
                return Normal(self.std)
            case _:
                return None
