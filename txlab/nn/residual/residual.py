"""The slot of residual rules: how a block's branches, its norms and the stream are wired."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot
from txlab.nn.norm.norm import Norm

Branch = Callable[[Float[Tensor, "b t d"]], Float[Tensor, "b t d"]]


class Residual(nn.Module):
    """`forward(x, branches)` runs the branches (attn, ffn ...) in order around the stream x."""

    @dataclass
    class Config(Component):
        """Fields shared by all residual rules."""

    final_norm: ClassVar[bool] = True
    """Whether the stack ends with a norm of its own."""

    def __init__(
        self, config: Config, dims: Dims, *, branches: Sequence[str], make_norm: Callable[[], Norm]
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleDict()
        self.dropout = nn.Dropout(dims.dropout)

    def forward(self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]) -> Float[Tensor, "b t d"]:
        raise NotImplementedError


residual = Slot("model.residual", Residual, doc="Wires branches, norms and the residual stream.")
