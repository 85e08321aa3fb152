"""The cache of attention with a window: memory for the tokens it can still see, no more."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.cache import KVCache
from txlab.nn.mask import Mask


class RingCache(KVCache):
    """Keys and values of the last `window` tokens and of the first `sinks`, each row at its own.

    Token i lies in slot i where it is a sink, else in slot sinks + (i - sinks) mod window: what a
    slot holds follows from the number of tokens, and nothing has to be moved.
    """

    def __init__(
        self,
        batch: int,
        n_kv_heads: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        window: int,
        sinks: int,
        values: tuple[int, int] | None = None,
    ) -> None:
        self.window, self.sinks, self.size = window, sinks, window + sinks
        super().__init__(batch, n_kv_heads, self.size, head_dim, device, dtype, values=values)
        self.written = 0
        """Tokens that the longest row has ever held."""

    def shown(self, mask: Mask) -> Mask:
        """The mask of the keys that `update` gives for these queries: slots, then new keys."""
        if mask.n_queries > 1 and self.written == 0:
            return replace(mask, n_keys=mask.n_queries, _memo={}, **self._new(mask))
        return mask.memo(("ring", self.size, self.sinks), lambda: self._shown(mask))

    def _new(self, mask: Mask) -> dict[str, Tensor]:
        """Key indices of the first tokens ever, where they do not stand in order."""
        if isinstance(mask.q_index, int):
            return {}
        return {"slots": mask.q_index.masked_fill(mask.q_index >= mask.n_keys, -1)}

    def _shown(self, mask: Mask) -> Mask:
        index = mask.q_index
        if isinstance(index, int):
            steps = torch.arange(index, index + mask.n_queries, device=self.k.device)[None]
        else:
            steps = index.masked_fill(index >= mask.n_keys, -1) if mask.padded else index
        if mask.n_queries == 1:
            filled = min(mask.n_keys, self.size)
            slots = self.content(steps[:, 0])[:, :filled]
            every = isinstance(index, int) and mask.blocks is None
            return replace(mask, n_keys=filled, slots=slots, sees_all=every, _memo={})
        # Tokens before the chunk: those before its first one that is no padding.
        first = steps[:, 0] if isinstance(index, int) else index.amin(1)
        before = (first - 1).where(steps.amax(1) >= 0, -1)
        slots = torch.cat([self.content(before)[:, : self._filled(mask)], steps], 1)
        return replace(mask, n_keys=slots.shape[1], slots=slots, _memo={})

    def content(self, last: Int[Tensor, "b"]) -> Int[Tensor, "b s"]:
        """Key index of what each slot holds when token `last` was the last; -1: nothing."""
        last = last[:, None]
        slot = torch.arange(self.size, device=last.device)
        ring = last - (last - slot) % self.window
        ring = ring.masked_fill(ring < self.sinks, -1)
        if not self.sinks:
            return ring
        return torch.where(slot < self.sinks, slot.where(slot <= last, -1), ring)

    def update(
        self, k: Float[Tensor, "b g t k"], v: Float[Tensor, "b w t v"], mask: Mask
    ) -> tuple[Float[Tensor, "b g s k"], Float[Tensor, "b w s v"]]:
        """Write new keys and values; the keys that `shown` describes."""
        n = k.shape[2]
        keys, values = k.to(self.k.dtype), v.to(self.v.dtype)
        if n > 1 and self.written:
            filled = self._filled(mask)
            keys = torch.cat([self.k[:, :, :filled], keys], 2)
            values = torch.cat([self.v[:, :, :filled], values], 2)
        self._write(k, v, mask)
        self.written = max(self.written, mask.n_keys)
        if n == 1:
            filled = min(mask.n_keys, self.size)
            return self.k[:, :, :filled], self.v[:, :, :filled]
        return keys, values

    def crop(self, length: int) -> None:
        if self.written > self.size and length < self.written - 1:
            raise RequestError(
                f"crop({length}): a window of {self.window} tokens has written over what comes "
                f"before token {length} ({self.written} were cached): start again with a new cache."
            )
        if self.written <= self.size:
            self.written = min(self.written, length)

    def _filled(self, mask: Mask) -> int:
        """Slots before a chunk that may hold anything."""
        return min(mask.q_index if isinstance(mask.q_index, int) else mask.n_keys, self.size)

    def _slot(self, index: Tensor) -> Tensor:
        return torch.where(
            index < self.sinks, index, self.sinks + (index - self.sinks) % self.window
        )

    def _write(self, k: Tensor, v: Tensor, mask: Mask) -> None:
        index, n = mask.q_index, k.shape[2]
        if isinstance(index, int):
            tokens = torch.arange(index, index + n, device=k.device)
            tokens = tokens[(tokens >= index + n - self.window) | (tokens < self.sinks)]
            slots, tokens = self._slot(tokens), tokens - index
            self.k[:, :, slots] = k[:, :, tokens].to(self.k.dtype)
            self.v[:, :, slots] = v[:, :, tokens].to(self.v.dtype)
            return
        there = index < mask.n_keys
        end = index.masked_fill(~there, -1).amax(1, keepdim=True) + 1
        kept = there & ((index >= end - self.window) | (index < self.sinks))
        slots = self._slot(index).where(kept, self.size)  # the spare slot, which no mask shows
        rows = torch.arange(len(index), device=k.device)[:, None]
        self.k[rows, :, slots] = k.transpose(1, 2).to(self.k.dtype)
        self.v[rows, :, slots] = v.transpose(1, 2).to(self.v.dtype)
