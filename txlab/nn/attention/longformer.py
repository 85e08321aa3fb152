"""Window and global tokens: each token sees its neighbourhood, a few see and are seen by all."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.attention.chosen import Chosen, chosen
from txlab.nn.attention.heads import MHA
from txlab.nn.attention.mixer import attention
from txlab.nn.cache import LayerCache
from txlab.nn.context import Context
from txlab.nn.far import FarCache, Stores
from txlab.nn.mask import Mask


@attention("longformer")
class Longformer(MHA):
    """Window and global tokens (Beltagy et al. 2020): few tokens see and are seen by all others.

    Global are the tokens that are named (`globals`: a key of batches, an argument of models and of
    `generate`), else the first of each document. They look through projections of their own at the
    keys and values of such projections; others look at them as at any token. Order, documents and
    padding hold for all.
    """

    names_globals: ClassVar[bool] = True

    @dataclass
    class Config(MHA.Config):
        """Fields of attention with global tokens."""

        window: int | None = None
        """Each token sees itself and the `window - 1` before it (and after, both ways); None: half
        the model's context. The paper's w, both sides together, is 2 (window - 1)."""
        n_globals: int = 4
        """Global tokens at the start of each document, where a batch names none. A causal model
        has use for two at least: its first token sees itself alone."""
        global_projections: bool = True
        """Give global tokens query, key and value projections of their own, as in the paper."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.n_globals >= 0, "n_globals", "a number from 0 up")

        def windowed(self) -> bool:
            return True

    def __init__(self, config: Config, dims: Dims) -> None:
        window = max(1, dims.context // 2) if config.window is None else config.window
        super().__init__(replace(config, window=window), dims)
        self.n_globals = config.n_globals
        if config.global_projections:
            # Of a whole context in one document, causal; a batch may name others.
            share = min(1.0, config.n_globals / dims.context)
            self.active = dict.fromkeys(("q_global", "k_global", "v_global"), share)

    def make_linears(self, config: Config, dims: Dims) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().make_linears(config, dims)
        own = config.global_projections
        wide = self.n_heads * self.head_dim

        def project() -> nn.Linear | None:
            return nn.Linear(dims.dim, wide, bias=config.qkv_bias) if own else None

        self.q_global, self.k_global, self.v_global = project(), project(), project()

    def narrow(self, mask: Mask) -> Mask:
        if mask.globals_ is not None:
            return mask.narrow(window=self.window, sinks=self.sinks, spares_globals=True)
        return mask.narrow(window=self.window, sinks=max(self.sinks, self.n_globals))

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        return FarCache(
            Stores(batch, self.n_kv_heads, self.head_dim, device, dtype),
            length=length,
            window=self.window or length,
            sinks=max(self.sinks, self.n_globals),
            n_globals=self.n_globals,
            shared=self.q_global is None,
        )

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        assert cache is None or isinstance(cache, FarCache)
        q, k, v = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = ctx.rotate(q, k)
        mask, near = self.narrow(ctx.mask), (k, v)
        if cache is not None:
            shown = cache.shown(mask)
            near = cache.update(k, v, mask)
            mask = shown
        y = self.attend(q, *near, mask, ctx)
        some = chosen(ctx.mask, self.n_globals)
        if some is None and (cache is None or not cache.named):
            return self.out(y, x)
        count = self._needed(some, ctx.mask)
        far = self._keys(x[:, :count], ctx, k[:, :, :count], v[:, :, :count])
        if cache is not None:
            far = cache.update_far(*far, ctx.mask)
        if some is not None:
            # A bias that learns is not shared between layers here, where it would be part of one.
            seen = replace(some.mask, _memo={}) if ctx.position.scores else some.mask
            y = some.put(y, self.attend(self._queries(x, q, some, ctx), *far, seen, ctx))
        return self.out(y, x)

    def _needed(self, some: Chosen | None, mask: Mask) -> int:
        """How many of the new tokens, from the first, a global query may ever look at."""
        if some is not None and isinstance(some.places, int) and mask.causal:
            return some.places
        return mask.n_queries

    def _queries(
        self, x: Float[Tensor, "b t d"], q: Float[Tensor, "b h t k"], some: Chosen, ctx: Context
    ) -> Float[Tensor, "b h m k"]:
        """Queries of global tokens."""
        if self.q_global is None:
            return some.pick(q, 2)
        own = self._heads(self.q_global(some.pick(x, 1)))
        own = own if self.q_norm is None else self.q_norm(own)
        angles = ctx.position.prepare(some.pick(ctx.positions, 1))
        return ctx.position.rotate(own, own[:, :0], angles)[0]

    def _keys(
        self,
        x: Float[Tensor, "b t d"],
        ctx: Context,
        k: Float[Tensor, "b g t k"],
        v: Float[Tensor, "b g t k"],
    ) -> tuple[Float[Tensor, "b g t k"], Float[Tensor, "b g t k"]]:
        """Keys and values for global queries; those of all queries where there are no others."""
        if self.k_global is None or self.v_global is None:
            return k, v
        own = self._heads(self.k_global(x))
        own = own if self.k_norm is None else self.k_norm(own)
        angles = ctx.position.prepare(ctx.positions[:, : x.shape[1]])
        own = ctx.position.rotate(own[:, :0], own, angles)[1]
        return own, self._heads(self.v_global(x))
