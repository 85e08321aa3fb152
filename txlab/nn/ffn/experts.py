"""Experts of any other feed-forward option, each on its own rows."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.context import Context
from txlab.nn.ffn.dispatch import Dispatch
from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.ffn.grouped import GroupedLinear
from txlab.nn.ffn.perceptron import Perceptron


class StackedExperts(nn.Module):
    """Perceptrons, the layers of each kind as one tensor: a few large products for all experts."""

    out_linears: ClassVar[tuple[str, ...]] = ("down",)

    def __init__(self, config: FFN.Config, dims: Dims, n_experts: int) -> None:
        super().__init__()
        with torch.device("meta"):  # only its widths and its `mix` are wanted
            one: Any = ffn.build(config, dims)
        self.mix = one.mix
        self.in_linears: tuple[str, ...] = one.in_linears
        for name in (*self.in_linears, "down"):
            linear = getattr(one, name)
            sizes = (n_experts, linear.in_features, linear.out_features)
            setattr(self, name, GroupedLinear(*sizes, bias=linear.bias is not None))

    def forward(
        self, x: Float[Tensor, "n d"], way: Dispatch, ctx: Context | None
    ) -> Float[Tensor, "m d"]:
        # Under autocast the few tokens are cast, not their many rows for each of the linears.
        kind, dtype = x.device.type, x.dtype
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        rows = way.spread(x, dtype)
        parts = (getattr(self, name)(rows, way.groups) for name in self.in_linears)
        return getattr(self, "down")(self.mix(*parts), way.groups)  # noqa: B009


class LoopedExperts(nn.ModuleList):
    """Experts of an option that is no perceptron, one after the other; waits for the device."""

    def __init__(self, config: FFN.Config, dims: Dims, n_experts: int) -> None:
        super().__init__(ffn.build(config, dims) for _ in range(n_experts))

    def forward(
        self, x: Float[Tensor, "n d"], way: Dispatch, ctx: Context | None
    ) -> Float[Tensor, "m d"]:
        rows = way.spread(x, x.dtype)
        stops = way.groups.tolist()
        starts = [0, *stops[:-1]]
        # An expert without rows runs too: its weights get a gradient of zero, not none.
        parts = [
            expert(rows[None, start:stop], ctx)[0]
            for expert, start, stop in zip(self, starts, stops, strict=True)
        ]
        return torch.cat([*parts, torch.zeros_like(rows[stops[-1] :])])


def experts(config: FFN.Config, dims: Dims, n_experts: int) -> StackedExperts | LoopedExperts:
    """`n_experts` of the option that `config` belongs to."""
    cls = ffn.option_of(config).cls
    kind = StackedExperts if issubclass(cls, Perceptron) else LoopedExperts
    return kind(config, dims, n_experts)


def expert_config(config: FFN.Config, expert: str, *, hidden: int | None) -> FFN.Config:
    """Config of one expert: that option's defaults, with the mixture's own `hidden` and `bias`."""
    option = ffn.option(expert)
    if option is ffn.option_of(config) or "n_experts" in option.config.__dataclass_fields__:
        raise RequestError(
            f"model.ffn.expert={expert}: experts cannot be mixtures themselves; "
            f"take {', '.join(name for name in ffn.options if name != expert)}."
        )
    made: Any = option.config(hidden=hidden, bias=config.bias)  # pyright: ignore
    return made


def expert_width(config: FFN.Config, dims: Dims) -> int:
    """Hidden width of one expert; RequestError where only the option itself knows."""
    cls = ffn.option_of(config).cls
    if config.hidden is None and not issubclass(cls, Perceptron):
        raise RequestError(
            f"model.ffn.n_shared needs model.ffn.hidden with model.ffn.expert={config.name}: "
            "its usual width is not known from outside."
        )
    return config.hidden or cls.usual_hidden(dims.dim)
