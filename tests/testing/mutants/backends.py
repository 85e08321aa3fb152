"""Broken attention backends."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.nn.backend import Backend, Math
from txlab.nn.mask import Mask


@caught_by("equals_the_definition", "causal with left padding")
class IgnoresPadding(Math):
    """Padded keys count."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return super().attend(q, k, v, replace(mask, valid=None, _memo={}), **how)


@caught_by("equals_the_definition", "global tokens")
class ForgetsGlobalKeys(Math):
    """Global keys beyond the window stay unseen."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return super().attend(q, k, v, replace(mask, globals_=None, _memo={}), **how)


@caught_by("equals_the_definition", "random blocks")
class DrawsNoBlocks(Math):
    """Of the graph of blocks, those drawn at random are left out."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        if mask.blocks is not None:
            mask = replace(mask, blocks=replace(mask.blocks, n_random=0))
        return super().attend(q, k, v, mask, **how)


@caught_by("equals_the_definition", "window over padding")
@caught_by("scores_and_caps", "padding between tokens with score")
class MeasuresOverPadding(Math):
    """Pads between two tokens count in their distance."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return super().attend(q, k, v, replace(mask, _memo={"gapped": False}), **how)


@caught_by("scores_and_caps", "with score and softcap")
class CapsAfterTheScore(Math):
    """The soft cap takes the positional score in as well."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, **how: Any
    ) -> Tensor:
        score, cap = how.get("score"), how.get("softcap")
        if score is None or cap is None:
            return super().attend(q, k, v, mask, scale=scale, **how)

        def squashed(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return cap * torch.tanh(score(h, i, j) / cap)

        return super().attend(q, k, v, mask, scale=scale, softcap=cap, score=squashed)


@caught_by("blind_rows_are_zero", "not finite")
class PoisonsBlindRows(Math):
    """A softmax over minus infinities."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, **how: Any
    ) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask.dense(q.device), -torch.inf)
        return scores.softmax(-1) @ v


@caught_by("gives_the_worked_numbers", "causal=False")
class ForgetsTheScale(Math):
    """Scores are not divided by anything."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, **how: Any
    ) -> Tensor:
        return super().attend(q, k, v, mask, scale=1.0, **how)


@caught_by("groups_heads_in_order", "query heads read [0, 1, 0, 1]")
class TilesKeyHeads(Math):
    """Key heads repeated as a whole."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        return super().attend(q, k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1), mask, **how)


@caught_by("lengths_in_turn", "")
class KeepsItsFirstMask(Math):
    """The mask of the first call is used for all that fit it."""

    first: Mask | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        self.first = self.first or mask
        return super().attend(q, k, v, self.first, **how)


@caught_by("bfloat16_is_near", "torch.float32 out")
class AnswersInFloat32(Math):
    """The output is left in float32."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return super().attend(q.float(), k.float(), v.float(), mask, **how)


@caught_by("dropout_drops", "another seed")
class DropsNothing(Math):
    """Dropout is ignored."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return super().attend(q, k, v, mask, **how | {"dropout": 0.0})


@caught_by("refuses_what_it_cannot", "it is not refused")
class TakesAnything(Math):
    """Never says no."""

    def pick(self, features: frozenset[str]) -> Backend:
        return self
