"""Broken mixers of other kinds than plain softmax attention."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.core.config import Dims
from txlab.nn.attention import MLA, DifferentialAttention, LinearAttention
from txlab.nn.attention.linear import RecurrentCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import NoPosition
from txlab.testing import tiny


@caught_by("documents_isolated", "document 1 of a packed row")
class CarriesStateOverBorders(LinearAttention):
    """The state is not reset where a document ends."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        ctx = replace(ctx, mask=replace(ctx.mask, documents=None))
        return super().forward(x, ctx, cache)


@caught_by("padding_isolated", "padded left")
@caught_by("decodes_uneven_rows", "padded left")
class SumsPadding(LinearAttention):
    """Padding is added to the state."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        ctx = replace(ctx, mask=replace(ctx.mask, valid=None, padded=False))
        return super().forward(x, ctx, cache)


@caught_by("decodes_in_any_chunks", "chunks of")
class ForgetsTheState(LinearAttention):
    """A chunk starts from an empty state."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        if cache is not None and x.shape[1] > 1:
            cache.values.zero_()
        return super().forward(x, ctx, cache)


class HalfMoved(RecurrentCache):
    """Moves the sums of values only."""

    def reorder(self, rows: Tensor) -> None:
        self.values = self.values[rows]


@caught_by("cache_reorders", "row 0 taken from 2")
class ReordersHalfTheState(LinearAttention):
    """The sums of weights stay with the rows they were made for."""

    def new_cache(self, *args: Any) -> RecurrentCache:
        made = super().new_cache(*args)
        made.__class__ = HalfMoved
        assert isinstance(made, RecurrentCache)
        return made


@caught_by("causal_by_gradient", "depends on a later input")
class SeesTheWholeChunk(LinearAttention):
    """The quadratic part of a chunk is not masked."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, causal=False)), cache)


@caught_by("every_parameter_learns", "is zero")
class DropsTheNormalizer(LinearAttention):
    """Values that no weight reaches: the sum of features alone."""

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        return super()._mix(q, k, torch.ones_like(v) + 0 * v, *rest)


@caught_by("decodes_in_any_chunks", "chunks of")
class RotaryKeyPerHead(MLA):
    """Decoding reads the rotary key moved by a channel, as if it were another head's."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **how: Any) -> Tensor:
        if k.shape[1] < self.n_heads:
            q = torch.cat((q[..., : self.kv_rank], q[..., self.kv_rank :].roll(1, -1)), -1)
        return super().attend(q, k, v, *rest, **how)


@caught_by("decodes_in_any_chunks", "chunks of")
class CachesKeysUnturned(MLA):
    """The rotary key goes into the cache before it is turned."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        if cache is not None:
            ctx = replace(ctx, position=NoPosition(NoPosition.Config(), tiny.DIMS))
        return super().forward(x, ctx, cache)


@caught_by("window_in_decoding", "expected keys 6, 7, 8")
class AbsorbsWithoutWindow(MLA):
    """In the latent space every token of the cache is seen."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *rest: Any, **how: Any) -> Tensor:
        if k.shape[1] < self.n_heads:
            mask = replace(mask, window=None)
        return super().attend(q, k, v, mask, *rest, **how)


@caught_by("positions_act", "output with rope")
class TurnsNothing(MLA):
    """The rotary key is never turned."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        ctx = replace(ctx, position=NoPosition(NoPosition.Config(), tiny.DIMS))
        return super().forward(x, ctx, cache)


@caught_by("every_parameter_learns", "lambda_a1 gets no gradient")
class IgnoresLambda(DifferentialAttention):
    """Lambda stays where it starts."""

    def strength(self) -> Tensor:
        return torch.tensor(self.lambda_init)


@caught_by("decodes_in_any_chunks", "chunks of")
class SwapsMapsWhenDecoding(DifferentialAttention):
    """The second map is the first one on the cache."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        if cache is not None:
            return self.swapped(x, ctx, cache)
        return super().forward(x, ctx, cache)

    def swapped(self, x: Tensor, ctx: Context, cache: Any) -> Tensor:
        chunk = DifferentialAttention.attend
        self.attend = lambda *a, **k: chunk(self, *a, **k).roll(1, 1)
        try:
            return super().forward(x, ctx, cache)
        finally:
            del self.attend


@caught_by("uneven_groups_are_refused", "it is not refused")
class PairsAnyHeads(DifferentialAttention):
    """Takes the next number of key heads that fits."""

    @staticmethod
    def kv_heads(config: Any, dims: Dims) -> int:
        wanted = DifferentialAttention.kv_heads(config, dims)
        return wanted if dims.n_heads % wanted == 0 else dims.n_heads
