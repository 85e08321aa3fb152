"""The slot of residual rules: how a block's branches, its norms and the stream are wired."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot
from txlab.nn.norm.norm import Norm

Branch = Callable[[Float[Tensor, "b t d"]], Float[Tensor, "b t d"]]


class Residual(nn.Module):
    """`forward(x, branches)` runs the branches (attn, ffn ...) in order around the stream x.

    `branches` are the names of the block's branches; a rule keeps a norm for each in `norms`.
    """

    @dataclass
    class Config(Component):
        """Fields shared by all residual rules."""

    final_norm: ClassVar[bool] = True
    """Whether the stack ends with a norm of its own."""

    def __init__(
        self, config: Config, dims: Dims, *, branches: Sequence[str], make_norm: Callable[[], Norm]
    ) -> None:
        super().__init__()
        self.dropout = dims.dropout
        self.norms = nn.ModuleDict({name: make_norm() for name in branches})

    def drop(self, y: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """A branch's output with the model's dropout."""
        return F.dropout(y, self.dropout, self.training) if self.dropout else y

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        raise NotImplementedError


residual = Slot("model.residual", Residual, doc="Wires branches, norms and the residual stream.")
