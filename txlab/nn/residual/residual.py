"""The slot of residual rules: how a block's branches, its norms and the stream are wired."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot
from txlab.nn.norm.norm import Norm

Branch = Callable[[Float[Tensor, "b t d"]], Float[Tensor, "b t d"]]


class Residual(nn.Module):
    """`forward(x, branches)` runs the branches (attn, ffn ...) in order around the stream x.

    `branches` are the names of the block's branches; a rule keeps a norm for each in `norms`, or
    for each of `norm_names` where it wants others. What a branch returns passes
    through `leave`.
    """

    @dataclass
    class Config(Component):
        """Fields shared by all residual rules."""

        layer_scale: float | None = None
        """Multiply each branch by a learned vector that starts at this (Touvron et al. 2021)."""
        drop_path: float = 0.0
        """Share of rows that skip a branch of the last layer while training, growing linearly from
        the first layer (stochastic depth, Huang et al. 2016)."""

        def __post_init__(self) -> None:
            scale = self.layer_scale
            self.require(scale is None or scale > 0, "layer_scale", "a number above 0")
            self.require(0 <= self.drop_path < 1, "drop_path", "0 <= drop_path < 1")

    final_norm: ClassVar[bool] = True
    """Whether the stack ends with a norm of its own."""

    def __init__(
        self,
        config: Config,
        dims: Dims,
        *,
        branches: Sequence[str],
        make_norm: Callable[[], Norm],
        norm_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.dropout = dims.dropout
        depth = 1.0 if dims.layer is None else (dims.layer + 1) / dims.n_layers
        self.drop_path = config.drop_path * depth
        names = branches if norm_names is None else norm_names
        self.norms = nn.ModuleDict({name: make_norm() for name in names})
        scale = config.layer_scale
        if scale is not None:
            self.scales = nn.ModuleDict({name: LayerScale(dims.dim, scale) for name in branches})
        self.scaled = scale is not None

    def leave(self, name: str, y: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """A branch's output as it goes to the stream: scaled, and while training thinned out."""
        if self.scaled:
            y = self.scales[name](y)
        if self.dropout:
            y = F.dropout(y, self.dropout, self.training)
        if self.drop_path and self.training:
            y = y * self._kept(y)
        return y

    def forward(
        self, x: Float[Tensor, "b t d"], branches: dict[str, Branch]
    ) -> Float[Tensor, "b t d"]:
        raise NotImplementedError

    def _kept(self, y: Float[Tensor, "b t d"]) -> Float[Tensor, "b 1 1"]:
        """0 for a share of `drop_path` of the rows, 1 / (1 - drop_path) for the others."""
        keep = 1 - self.drop_path
        return torch.empty_like(y[:, :1, :1]).bernoulli_(keep) / keep


class LayerScale(nn.Module):
    """x times a learned vector."""

    def __init__(self, dim: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every channel as configured."""
        nn.init.constant_(self.weight, self.start)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        return x * self.weight


residual = Slot("model.residual", Residual, doc="Wires branches, norms and the residual stream.")
