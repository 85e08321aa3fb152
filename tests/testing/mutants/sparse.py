"""Broken patterns of attention."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.nn.attention.bigbird import BigBird
from txlab.nn.attention.longformer import Longformer
from txlab.nn.attention.softmax import SoftmaxAttention
from txlab.nn.context import Context
from txlab.nn.mask import Mask


@caught_by("globals_see_and_are_seen", "global row 2 sees keys [1, 2], expected [0, 1, 2]")
class SeenButBlind(Longformer):
    """Global tokens are seen by all and look no farther than others."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        return SoftmaxAttention.forward(self, x, ctx, cache)


@caught_by("globals_see_and_are_seen", "ordinary row 4 sees keys [3, 4], expected [2, 3, 4]")
class SeeingButUnseen(Longformer):
    """Global tokens look far and are not seen from afar."""

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(window=self.window)


@caught_by("window_in_prefill", "expected keys 1, 2, 3")
@caught_by("globals_see_and_are_seen", "sees keys")
class OneNeighbourMore(Longformer):
    """A window of W + 1 between global tokens."""

    def narrow(self, mask: Mask) -> Mask:
        assert self.window is not None
        return mask.narrow(window=self.window + 1, spares_globals=mask.globals_ is not None)


@caught_by("sparse_patterns_decode", "chunks of")
class DrawsAnewEachPass(BigBird):
    """The blocks depend on how many tokens arrive together."""

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(blocks=replace(self.blocks, seed=mask.n_queries))


@caught_by("draws_hold_as_rows_grow", "row i sees others")
class DrawsByLength(BigBird):
    """The blocks depend on the length of the row."""

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(blocks=replace(self.blocks, seed=mask.n_keys))
