"""The gated perceptron with a SiLU gate."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN, ffn


def gated_hidden(dim: int) -> int:
    """8/3 dim, rounded up to a multiple of 64: the weights of an MLP of 4 dim (Shazeer 2020)."""
    return -(-8 * dim // (3 * 64)) * 64


@ffn("swiglu")
class SwiGLU(FFN):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020); hidden is 8/3 dim by default."""

    @dataclass
    class Config(FFN.Config):
        """Fields of the gated perceptron."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        hidden = config.hidden or gated_hidden(dims.dim)
        self.gate = nn.Linear(dims.dim, hidden, bias=config.bias)
        self.up = nn.Linear(dims.dim, hidden, bias=config.bias)
        self.down = nn.Linear(hidden, dims.dim, bias=config.bias)

    def forward(
        self, x: Float[Tensor, "*b d"], ctx: Context | None = None
    ) -> Float[Tensor, "*b d"]:
        return self.down(F.silu(self.gate(x)) * self.up(x))
