"""Broken mixers of other kinds than plain softmax attention."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.nn.attention import LinearAttention
from txlab.nn.attention.linear import RecurrentCache
from txlab.nn.context import Context


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
