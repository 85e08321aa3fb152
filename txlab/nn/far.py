"""The cache of attention with global tokens: what its window shows, and what global tokens see."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from txlab.nn.cache import KVCache, LayerCache, write
from txlab.nn.mask import Mask
from txlab.nn.ring import RingCache


@dataclass(frozen=True)
class Stores:
    """Makes empty stores of keys and values."""

    batch: int
    n_kv_heads: int
    head_dim: int
    device: torch.device
    dtype: torch.dtype

    def whole(self, length: int) -> KVCache:
        """For all of so many tokens."""
        return KVCache(self.batch, self.n_kv_heads, length, self.head_dim, self.device, self.dtype)

    def ring(self, window: int, sinks: int) -> RingCache:
        """For the last `window` tokens and the first `sinks`."""
        return RingCache(
            self.batch,
            self.n_kv_heads,
            self.head_dim,
            self.device,
            self.dtype,
            window=window,
            sinks=sinks,
        )


class FarCache(LayerCache):
    """Two stores of keys and values: `near` for all queries, `far` for those of global tokens.

    While the first `n_globals` tokens are the global ones, `near` is a ring and `far` holds these
    tokens alone. Where calls name global tokens, any later one may be, and both hold all.
    """

    def __init__(
        self, stores: Stores, *, length: int, window: int, sinks: int, n_globals: int, shared: bool
    ) -> None:
        """`shared`: keys and values are the same for both kinds of queries."""
        ringed = window + sinks < length
        self.near = stores.ring(window, sinks) if ringed else stores.whole(length)
        self.far = stores.whole(min(n_globals, length))
        self.stores, self.length, self.shared = stores, length, shared
        self.named = False
        """Whether calls name the global tokens (all of them or none: `Cache.place` sees to it)."""

    def shown(self, mask: Mask) -> Mask:
        if mask.globals_ is not None and not self.named:
            self.named, self.near = True, self.stores.whole(self.length)
            self.far = self.near if self.shared else self.stores.whole(self.length)
        return self.near.shown(mask)

    def update(
        self, k: Float[Tensor, "b g t k"], v: Float[Tensor, "b g t k"], mask: Mask
    ) -> tuple[Float[Tensor, "b g s k"], Float[Tensor, "b g s k"]]:
        """Write new keys and values of `near`; those that `shown` describes."""
        return self.near.update(k, v, mask)

    def update_far(
        self, k: Float[Tensor, "b g t k"], v: Float[Tensor, "b g t k"], mask: Mask
    ) -> tuple[Float[Tensor, "b g s k"], Float[Tensor, "b g s k"]]:
        """Write new keys and values of `far`; all that a global query may see, in order."""
        if self.named:
            if not self.shared:
                return self.far.update(k, v, mask)
            return self.far.k[:, :, : mask.n_keys], self.far.v[:, :, : mask.n_keys]
        n, index = self.far.k.shape[2] - 1, mask.q_index
        if isinstance(index, int):
            k, v = k[:, :, : max(0, n - index)], v[:, :, : max(0, n - index)]
        else:
            index = index.clamp(max=n)  # the spare slot, which nothing shows
        if k.shape[2]:
            write(self.far.k, k, index)
            write(self.far.v, v, index)
        there = min(n, mask.n_keys)
        return self.far.k[:, :, :there], self.far.v[:, :, :there]

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        self.near.reorder(rows)
        if self.far is not self.near:
            self.far.reorder(rows)

    def crop(self, length: int) -> None:
        self.near.crop(length)

    def bytes_per_token(self) -> int:
        far = self.far.bytes_per_token() if self.named and not self.shared else 0
        return self.near.bytes_per_token() + far
