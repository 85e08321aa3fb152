"""The slot of token mixers: whatever stands between a block's norm and its residual addition."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot
from txlab.nn.backend.backend import Backend
from txlab.nn.cache import LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask, Score
from txlab.nn.position.position import Position


class Mixer(nn.Module):
    """Mixes tokens along the sequence: `forward(x[b t d], ctx, cache) -> [b t d]`."""

    @dataclass
    class Config(Component):
        """Fields shared by all mixers."""

    out_linears: ClassVar[tuple[str, ...]] = ("o",)
    """Attributes of the linears that write to the residual stream (init scales them by depth)."""

    attends: ClassVar[bool] = True
    """Whether `ctx.backend` computes it; where not, no mask is lowered for it."""

    names_globals: ClassVar[bool] = False
    """Whether it has global tokens, which a batch or a prompt may name (`globals`)."""

    active: Mapping[str, float] = MappingProxyType({})
    """Share of the tokens that the parts of these names work on, where that is not all of them."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__()
        self.rotary_dim = dims.head_dim
        """Channels of a head that it hands to `ctx.rotate`: angles are made for that many."""

    @property
    def features(self) -> frozenset[str]:
        """What this mixer asks of a backend beyond a mask: `softcap`, `dropout` ..."""
        return frozenset()

    def refuse(self, position: Position, backend: Backend) -> str | None:
        """Why this mixer cannot work with that scheme or backend; None where it can.

        The reason names the other option and the way out: "model.pos=alibi biases scores, and
        there are none: use rope". `backend` is the one asked for, which `auto` has yet to pick.
        """
        return None

    def flops(self, context: int, *, decoding: bool = False) -> float | None:
        """Forward FLOPs a token beside its linear layers, a mean over a causal row of `context`
        tokens; `decoding`: those of the last one alone. None: counted by running it on tensors
        without numbers, times the share of keys that `narrow` leaves to be seen.
        """
        return None

    def narrow(self, mask: Mask) -> Mask:
        """The mask as this mixer reads it: the body's own by default."""
        return mask

    def score(self, ctx: Context) -> Score | None:
        """The bias that it asks the backend to add to its scores; None: none."""
        return None

    @property
    def n_maps(self) -> int:
        """Softmaxes that it asks the backend for: heads of the queries that it hands over."""
        raise NotImplementedError

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        """Empty decoding state for `batch` rows of at most `length` tokens."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        raise NotImplementedError


attention = Slot("model.attn", Mixer, doc="Mixes tokens along the sequence.")
