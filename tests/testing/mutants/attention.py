"""Broken token mixers."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.core.config import Dims
from txlab.nn.attention import GQA, MHA, Mixer
from txlab.nn.cache import KVCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask


@caught_by("causal_by_perturbation", "outputs before changed token")
@caught_by("causal_by_gradient", "depends on a later input")
class LeaksOneToken(MHA):
    """Each token sees the one after it as well."""

    def narrow(self, mask: Mask) -> Mask:
        return replace(mask, q_index=mask.q_index + 1)


@caught_by("causal_by_gradient", "no mixing")
class MixesNothing(MHA):
    """Values alone."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        return self.o(self.v(x))


@caught_by("window_in_prefill", "row 3 sees keys 0, 1, 2, 3, expected keys 1, 2, 3")
@caught_by("window_through_layers", "a change 3 tokens back")
@caught_by("wide_window_is_none", "window=9 on 9 tokens")
class WindowPlusOne(MHA):
    """One key too many, in both directions of the comparison."""

    def narrow(self, mask: Mask) -> Mask:
        if self.window == 9:
            return mask.narrow(window=8)
        return mask.narrow(window=None if self.window is None else self.window + 1)


@caught_by("window_counts_no_padding", "6 tokens among 6 pads (between)")
class WindowOverPadding(MHA):
    """Pads between two tokens count in their distance."""

    def narrow(self, mask: Mask) -> Mask:
        narrow = super().narrow(mask)
        narrow._memo["gapped"] = False
        return narrow


@caught_by("window_in_decoding", "expected keys 6, 7, 8")
class DecodesWithoutWindow(MHA):
    """The window is forgotten on the cache."""

    def narrow(self, mask: Mask) -> Mask:
        return super().narrow(mask) if mask.n_queries == mask.n_keys else mask


@caught_by("documents_isolated", "document 1 of a packed row")
class ForgetsDocuments(MHA):
    """Packed documents see each other."""

    def narrow(self, mask: Mask) -> Mask:
        return replace(mask, documents=None)


@caught_by("padding_isolated", "padded left")
@caught_by("blind_rows_are_harmless", "gradient to padding")
class SeesPadding(MHA):
    """Padding is as good as text."""

    def narrow(self, mask: Mask) -> Mask:
        return replace(mask, valid=None)


@caught_by("builds_on_meta", "heat would stay unfilled")
class NeverFillsItsHeat(MHA):
    """Adds a parameter that no reset_parameters() knows."""

    def __init__(self, config: MHA.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.heat = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        return super().forward(x * self.heat, ctx, cache)


@caught_by("permutation_equivariant", "permuted tokens")
class CountsFromTheLeft(MHA):
    """Adds the place in the row to each token."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        place = torch.arange(x.shape[1], dtype=x.dtype) / x.shape[1]
        return super().forward(x + place[:, None], ctx, cache)


@caught_by("gradients_are_exact", "no padding")
@caught_by("every_parameter_learns", "part.q.weight gets no gradient")
class DetachesQueries(MHA):
    """Queries are cut off from the graph."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        for parameter in self.q.parameters():
            parameter.requires_grad_(True)
        query = self.q.forward
        self.q.forward = lambda x: query(x).detach()
        try:
            return super().forward(x, ctx, cache)
        finally:
            del self.q.forward


@caught_by("backends_agree", "sdpa, causal mask")
class ScalesByBackend(MHA):
    """Another scale on every backend but the reference."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        self.scale = self.head_dim**-0.5 if ctx.backend.name == "math" else 1.0
        return super().forward(x, ctx, cache)


@caught_by("heads_are_grouped_in_order", "heads read [0, 1, 0, 1], expected [0, 0, 1, 1]")
class TilesHeads(GQA):
    """Key/value heads repeated as a whole instead of each one by itself."""

    @dataclass
    class Config(GQA.Config):
        pass

    def _heads(self, x: Tensor) -> Tensor:
        heads = super()._heads(x)
        return heads.repeat(1, self.n_heads // heads.shape[1], 1, 1)


@caught_by("extremes_are_mha_and_mqa", "n_kv_heads=4 against MHA")
class ReversesHeads(GQA):
    """The last key/value head first."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        q = self._heads(self.q(x))
        k, v = self._heads(self.k(x)).flip(1), self._heads(self.v(x)).flip(1)
        y = ctx.backend.attend(q, k, v, ctx.mask, scale=self.scale)
        return self.o(y.transpose(1, 2).flatten(2))


@caught_by("uneven_groups_are_refused", "it is not refused")
class TakesAnyGroups(GQA):
    """Rounds the number of key/value heads instead of refusing it."""

    @staticmethod
    def kv_heads(config: Any, dims: Dims) -> int:
        wanted = GQA.kv_heads(config, dims)
        return max(n for n in range(1, wanted + 1) if dims.n_heads % n == 0)


class Late(KVCache):
    """Writes one place too late."""

    def update(self, k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        super().update(k, v, replace(mask, q_index=mask.q_index + 1))
        return self.k[:, :, : mask.n_keys], self.v[:, :, : mask.n_keys]


class Level(KVCache):
    """Writes all rows at the place of the longest."""

    def update(self, k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        start = mask.n_keys - mask.n_queries
        super().update(k, v, replace(mask, q_index=start))
        return self.k[:, :, : mask.n_keys], self.v[:, :, : mask.n_keys]


class Rounded(KVCache):
    """Keeps whole numbers only."""

    def update(self, k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        return super().update(k.round(), v.round(), mask)


class Growing(KVCache):
    """Writes behind what it wrote last, whatever the mask says."""

    def update(self, k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        self.written = getattr(self, "written", 0) + k.shape[2]
        start = min(self.written, self.k.shape[2] - 1) - k.shape[2]
        super().update(k, v, replace(mask, q_index=start))
        return self.k[:, :, : mask.n_keys], self.v[:, :, : mask.n_keys]


class Stubborn(KVCache):
    """Neither reorders nor knows its size."""

    def reorder(self, rows: Tensor) -> None:
        self.k, self.v = self.k[: len(rows)], self.v[: len(rows)]

    def bytes_per_token(self) -> int:
        return 64


def with_cache(kind: type[KVCache], mixer: Any, args: tuple[Any, ...]) -> KVCache:
    """The mixer's own cache, as another kind."""
    made = MHA.new_cache(mixer, *args)
    made.__class__ = kind
    assert isinstance(made, kind)
    return made


@caught_by("decodes_in_any_chunks", "chunks of")
class CacheOffByOne(MHA):
    """Keys lie one place too late in the cache."""

    def new_cache(self, *args: Any) -> KVCache:
        return with_cache(Late, self, args)


@caught_by("decodes_uneven_rows", "prompt of")
class CacheWithOneOffset(MHA):
    """All rows of the cache are taken to be as long as the longest."""

    def new_cache(self, *args: Any) -> KVCache:
        return with_cache(Level, self, args)


@caught_by("decodes_in_bfloat16", "bfloat16: cached logits are off")
class CacheInHalf(MHA):
    """Rounds cached keys to whole numbers unless they are float32."""

    def new_cache(self, *args: Any) -> KVCache:
        return with_cache(KVCache if args[-1] == torch.float32 else Rounded, self, args)


@caught_by("cache_crops", "token after crop(4)")
class CacheThatKeepsAll(MHA):
    """What was cropped stays in the cache."""

    def new_cache(self, *args: Any) -> KVCache:
        return with_cache(Growing, self, args)


@caught_by("cache_reorders", "row 0 taken from 2")
@caught_by("cache_reports_its_size", "128 bytes in float32, 128 in bfloat16")
class CacheThatStays(MHA):
    """The cache keeps its order and its size."""

    def new_cache(self, *args: Any) -> KVCache:
        return with_cache(Stubborn, self, args)


@caught_by("cache_belongs_to_the_call", "row 0 of two interleaved")
class CacheInTheModule(MHA):
    """One cache for everybody."""

    def new_cache(self, *args: Any) -> KVCache:
        if "kept" not in self.__dict__:
            self.__dict__["kept"] = with_cache(KVCache, self, args)
        return self.__dict__["kept"]


@caught_by("rows_do_not_mix", "row 0 alone")
class LooksAtBatchMates(MHA):
    """Subtracts the mean of the batch."""

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        return super().forward(x - x.mean(0, keepdim=True), ctx, cache)


@caught_by("deterministic", "depends on an earlier call")
class Remembers(MHA):
    """Adds a trace of what it saw last."""

    trace = 0.0

    def forward(self, x: Tensor, ctx: Context, cache: Any = None) -> Tensor:
        y = super().forward(x, ctx, cache) + self.trace
        self.trace = float(x.detach().mean())
        return y


@caught_by("builds_from_defaults", "unknown")
class NeedsFourHeads(Mixer):
    """Its default does not fit every size."""

    def __init__(self, config: Mixer.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        if dims.n_heads < 2:
            raise ValueError(f"unknown what to do with {dims.n_heads} head")
