"""The slot of feed-forward layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot
from txlab.nn.auxiliary import Aux
from txlab.nn.context import Context


class FFN(nn.Module):
    """Works on each token by itself: `forward(x[b t d], ctx) -> [b t d]`.

    An option with auxiliary losses returns `(y, Aux({"name": loss}))` instead of `y`.
    """

    @dataclass
    class Config(Component):
        """Fields shared by all feed-forward layers."""

        hidden: int | None = None
        """Width of the hidden layer; None: the option's usual multiple of `dim`."""
        bias: bool = False
        """Add a bias to the linear layers."""

        def __post_init__(self) -> None:
            self.require(self.hidden is None or self.hidden > 0, "hidden", "a number above 0")

    out_linears: ClassVar[tuple[str, ...]] = ("down",)
    """Attributes of the linears that write to the residual stream (init scales them by depth)."""

    active: Mapping[str, float] = MappingProxyType({})
    """Share of the tokens that the parts of these names work on, where that is not all of them."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__()

    @property
    def balances(self) -> bool:
        """Whether it has a balancing bias, to be moved by the loads that it puts into its `Aux`."""
        return False

    def rebalance(self, load: Float[Tensor, "e"]) -> None:
        """Move that bias by the load of a whole step: all its micro-batches, all ranks."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context
    ) -> Float[Tensor, "b t d"] | tuple[Float[Tensor, "b t d"], Aux]:
        raise NotImplementedError


ffn = Slot("model.ffn", FFN, doc="Works on each token by itself.")
