"""An initialisation used to train Llama-shaped models."""

from dataclasses import dataclass

from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.init.init import Init, Normal, Role, init


@init("llama")
class LlamaInit(Init):
    """Normal cut at 3 std: std 0.02, residual outputs / sqrt(2 (layer + 1)), untied head dim^-0.5.

    Meta published no recipe; this is torchtitan's for Llama: outputs scaled by their own depth
    (Zhang et al. 2019), the head so that logits start with about unit variance.
    """

    @dataclass
    class Config(Init.Config):
        """Fields of the Llama initialisation."""

        std: float = 0.02
        """Standard deviation of embeddings and linear layers."""
        cut: float = 3.0
        """Where the normals end, in standard deviations."""

        def __post_init__(self) -> None:
            self.require(self.std > 0, "std", "a number above 0")
            self.require(self.cut > 0, "cut", "a number above 0")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.std = config.std
        self.cut = config.cut

    def distribution(self, name: str, tensor: Tensor, role: Role, layer: int) -> Normal | None:
        match role:
            case "bias":
                return Normal(0.0)
            case "out":
                return Normal(self.std * (2 * (layer + 1)) ** -0.5, cut=self.cut)
            case "head":
                return Normal(self.dims.dim**-0.5, cut=self.cut)
            case "embed" | "position" | "in":
                return Normal(self.std, cut=self.cut)
            case _:
                return None
