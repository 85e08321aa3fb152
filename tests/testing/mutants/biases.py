"""Broken biases of attention scores, and mixers that do not heed them."""

import dataclasses
from typing import Any

from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.nn.attention import MHA
from txlab.nn.context import Context
from txlab.nn.position import T5, ALiBi, NoPosition
from txlab.testing import tiny


@caught_by("biases_every_backend", "output with the bias")
@caught_by("tells_order", "positions 1 and 2")
class FallsNowhere(ALiBi):
    """All slopes are 0."""

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return super().score(h, q, k) * 0


@caught_by("shift_invariant", "shifted by 1")
@caught_by("biases_by_distance_in_tokens", "row behind pads")
class CountsFromTheRowsStart(ALiBi):
    """The slope grows along the row."""

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return super().score(h, q, k) * (1 + 0.01 * q)


@caught_by("biases_accumulate", "backward through the graph a second time")
class KeepsItsBias(T5):
    """The bias is made once and kept, with its graph."""

    kept: Any = None

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = super().score(h, q, k)
        return self.kept


@caught_by("every_parameter_learns", "part.table.weight")
class LearnsNothing(T5):
    """The bias has no gradient."""

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return super().score(h, q, k).detach()


@caught_by("positions_act", "output with alibi")
class IgnoresALiBi(MHA):
    """Turns queries and keys, and forgets the score."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        if ctx.position.scores:
            nothing = NoPosition(NoPosition.Config(), tiny.DIMS)
            ctx = dataclasses.replace(ctx, position=nothing)
        return super().forward(x, ctx, cache)
