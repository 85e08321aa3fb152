"""Cross-attention: queries from the stream, keys and values from the encoder's states."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.attention.heads import GQA
from txlab.nn.cache import LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask


class CrossCache(LayerCache):
    """Keys and values of the memory, made once from the first call's; they never grow."""

    k: Float[Tensor, "b g s k"] | None = None
    v: Float[Tensor, "b g s k"] | None = None

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]

    def bytes_per_token(self) -> int:
        return 0


class BranchCaches(LayerCache):
    """The state of a layer's own attention and that of its cross-attention."""

    def __init__(self, own: LayerCache, cross: LayerCache) -> None:
        self.own, self.cross = own, cross

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        self.own.reorder(rows)
        self.cross.reorder(rows)

    def crop(self, length: int) -> None:
        self.own.crop(length)

    def shown(self, mask: Mask) -> Mask:
        return self.own.shown(mask)

    def bytes_per_token(self) -> int:
        return self.own.bytes_per_token()


class CrossAttention(GQA):
    """Attention from a decoder's tokens to all of an encoder's (Vaswani et al. 2017, 3.2.3).

    Not an option of `model.attn` but a branch of a block, between attention and feed-forward:
    `ctx.memory` holds the encoder's states, `ctx.memory_mask` says which of them exist (None: all).
    No positional scheme acts between the two texts. Heads of an empty memory are 0.
    """

    @dataclass
    class Config(GQA.Config):
        """Fields of cross-attention: those of grouped heads, but a window means nothing here."""

        name: str = "cross"
        n_kv_heads: int | None = None
        """Key/value heads; None: as many as there are query heads."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.window is None, "window", "none: memory has no order to look back in")

    @staticmethod
    def kv_heads(config: GQA.Config, dims: Dims) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return dims.n_heads if config.n_kv_heads is None else config.n_kv_heads

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        return CrossCache()

    def memory_bytes(self, length: int, dtype: torch.dtype) -> int:
        """Bytes that a row's cache has for a memory of `length` tokens."""
        return 2 * self.n_kv_heads * self.head_dim * length * dtype.itemsize

    def flops(self, context: int, *, decoding: bool = False) -> float:
        """Of a memory as long as the text itself; its keys and values are made once, so a decoded
        token has no part in them."""
        products = 4.0 * self.n_heads * self.head_dim * context
        made = 2.0 * (self.k.weight.numel() + self.v.weight.numel())
        return products - made if decoding else products

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        assert ctx.memory is not None, "cross-attention needs ctx.memory"
        q = self._heads(self.q(x))
        if ctx.memory.shape[1] == 0:
            return self.out(torch.zeros_like(q), x)
        k, v = self._memory(ctx.memory, cache)
        if self.q_norm is not None:
            q = self.q_norm(q)
        mask = ctx.memory_mask or Mask(q.shape[2], k.shape[2], causal=False)
        if mask.causal:
            raise ValueError("memory_mask is causal, but a decoder sees all of its memory")
        y = ctx.backend.attend(
            q,
            k,
            v,
            mask,
            scale=self.scale,
            softcap=self.softcap,
            sink_logit=self.sink_logit,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.out(y, x)

    def _memory(
        self, memory: Float[Tensor, "b s d"], cache: LayerCache | None
    ) -> tuple[Float[Tensor, "b g s k"], Float[Tensor, "b g s k"]]:
        if isinstance(cache, CrossCache) and cache.k is not None and cache.v is not None:
            return cache.k, cache.v
        k, v = self._heads(self.k(memory)), self._heads(self.v(memory))
        if self.k_norm is not None:
            k = self.k_norm(k)
        if isinstance(cache, CrossCache):
            cache.k, cache.v = k, v
        return k, v
