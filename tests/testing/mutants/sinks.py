"""Broken sinks, sink logits, gates, ring caches and backends that have to do with them."""

from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.nn.attention import GQA, SWA
from txlab.nn.backend import SDPA, Banded, Flex
from txlab.nn.mask import Mask
from txlab.nn.ring import RingCache


@caught_by("sinks_stay_in_sight", "one document: row 8 sees keys [7, 8], expected [0, 1, 7, 8]")
class ForgetsSinks(SWA):
    """A window that spares nothing."""

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(window=self.window)


@caught_by("sinks_stay_in_sight", "packed: row 8 sees keys [7, 8], expected [4, 5, 7, 8]")
class SinksOfTheRow(SWA):
    """The first tokens of the row, whatever document they belong to."""

    def narrow(self, mask: Mask) -> Mask:
        narrow = super().narrow(mask)
        if mask.documents is not None:
            narrow.memo(("ranks",), lambda: torch.arange(mask.n_keys).expand_as(mask.documents))
        return narrow


class ShortRing(RingCache):
    """Holds a token fewer than its window, so that the oldest one is overwritten."""

    def __init__(self, *args: Any, window: int, sinks: int) -> None:
        super().__init__(*args, window=max(1, window - 1), sinks=sinks)


@caught_by("sinks_stay_in_the_cache", "row 8 sees keys [0, 1, 8]")
@caught_by("window_in_decoding", "expected keys 6, 7, 8")
class OverwritesTooEarly(SWA):
    """Decodes on a ring that is one short."""

    def new_cache(self, batch: int, length: int, device: Any, dtype: Any) -> Any:
        if not isinstance(self.window, int) or self.window >= length:
            return super().new_cache(batch, length, device, dtype)
        how = {"window": self.window, "sinks": self.sinks}
        return ShortRing(batch, self.n_kv_heads, self.head_dim, device, dtype, **how)


@caught_by("sink_logit_takes_its_share", "output with a sink logit of 60")
class ForgetsTheSink(GQA):
    """Never tells the backend of its sink."""

    def attend(self, *args: Any) -> Tensor:
        kept, self.sink_logit = self.sink_logit, None
        try:
            return super().attend(*args)
        finally:
            self.sink_logit = kept


@caught_by("gate_halves_when_flat", "output behind a flat gate")
class GatesByTanh(GQA):
    """Another squashing."""

    def out(self, y: Tensor, x: Tensor) -> Tensor:
        y = y.transpose(1, 2).flatten(2)
        return self.o(y if self.gate is None else y * self.gate(x).tanh())


@caught_by("scores_and_caps", "sink_logit")
class SinkPerGroup(SDPA):
    """One sink for the heads of a group."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        if how.get("sink_logit") is not None:
            how["sink_logit"] = how["sink_logit"].view(k.shape[1], -1).mean(1, keepdim=True)
            how["sink_logit"] = how["sink_logit"].expand(-1, q.shape[1] // k.shape[1]).flatten()
        return super().attend(q, k, v, mask, **how)


@caught_by("lengths_in_turn", "127 tokens")
class CutsTooNear(Banded):
    """Leaves out the first block of every run that has several."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        self.run = 100
        if q.shape[2] > self.run:
            mask = Mask(q.shape[2], k.shape[2], window=self.run)
        return super().attend(q, k, v, mask, **how)


@caught_by("trains_or_says_not", "it is not refused")
class TrainsInSilence(Flex):
    """Gives an output without gradients where it has none."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **how: Any) -> Tensor:
        return super().attend(q.detach(), k.detach(), v.detach(), mask, **how)
