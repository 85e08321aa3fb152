"""Decoding state: made by the mixers, passed as an argument, never hidden in a module."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.mask import Mask


class LayerCache:
    """One layer's decoding state; a mixer with more than keys and values derives its own."""

    def shown(self, mask: Mask) -> Mask:
        """`mask` for the keys that this cache gives back; as it is where they stand in order."""
        return mask

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        """Keep `rows` of the batch, in this order (rows may repeat)."""
        raise NotImplementedError

    def crop(self, length: int) -> None:
        """Forget what follows each row's first `length` tokens; nothing to do where the next ones
        are written over them. RequestError where it cannot be forgotten."""

    def bytes_per_token(self) -> int:
        """Bytes that one more token of one row takes in this layer."""
        raise NotImplementedError


def write(
    store: Float[Tensor, "b g n k"], new: Float[Tensor, "b g t k"], start: Int[Tensor, "b t"] | int
) -> None:
    """Put new tokens into a store at their indices, in place."""
    if isinstance(start, int):
        store[:, :, start : start + new.shape[2]] = new
    else:
        # By index_put, which a compiled graph does in place; scatter_ copies the whole store.
        rows = torch.arange(len(start), device=start.device)[:, None]
        store[rows, :, start] = new.transpose(1, 2).to(store.dtype)


class KVCache(LayerCache):
    """Keys (already rotated) and values of every token so far, each row at its own length."""

    def __init__(
        self,
        batch: int,
        n_kv_heads: int,
        length: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        values: tuple[int, int] | None = None,
    ) -> None:
        """`values`: heads and channels of values where they are not those of keys."""
        # One slot more than asked for: padding is written there, where no mask ever looks.
        v_heads, v_dim = (n_kv_heads, head_dim) if values is None else values
        self.k = torch.zeros(batch, n_kv_heads, length + 1, head_dim, device=device, dtype=dtype)
        self.v = torch.zeros(batch, v_heads, length + 1, v_dim, device=device, dtype=dtype)

    def update(
        self, k: Float[Tensor, "b g t k"], v: Float[Tensor, "b w t v"], mask: Mask
    ) -> tuple[Float[Tensor, "b g s k"], Float[Tensor, "b w s v"]]:
        """Write new keys and values at the mask's query indices; all that the mask may show."""
        write(self.k, k, mask.q_index)
        write(self.v, v, mask.q_index)
        return self.k[:, :, : mask.n_keys], self.v[:, :, : mask.n_keys]

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        self.k, self.v = self.k[rows], self.v[rows]

    def bytes_per_token(self) -> int:
        numbers = sum(store.shape[1] * store.shape[3] for store in (self.k, self.v))
        return numbers * self.k.element_size()


@dataclass
class Cache:
    """A whole model's decoding state: the layers' caches and how far each row is filled."""

    layers: list[LayerCache]
    capacity: int
    """Tokens a row may hold."""
    lengths: Int[Tensor, "b"] | int = 0
    """Tokens each row holds; an int while all rows hold the same number."""
    longest: int = field(default=0)
    """Tokens in the longest row, known without asking the device."""
    globals_: Bool[Tensor, "b s"] | None = None
    """Which tokens so far were named as global, where the first call named any."""
    fixed: bool = False
    """Set by `fix_shapes`."""

    def place(
        self,
        batch: int,
        n: int,
        valid: Bool[Tensor, "b n"] | None,
        device: torch.device,
        globals_: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Mask, Int[Tensor, "#b n"]]:
        """Mask and positions for the next `n` columns; padding (`valid` False) takes no room.

        `globals_`: which of them are global; from the first call on, or never. Advances the
        lengths: call once a forward pass. Raises RequestError when a row is full.
        """
        begun = self.fixed or self.longest > 0
        mask, positions = self._place(batch, n, valid, device)
        if globals_ is None and self.globals_ is None:
            return mask, positions
        if self.globals_ is None:
            if begun:
                raise RequestError(
                    "globals: the cache holds tokens of a call that named none; name them from "
                    "the first call on."
                )
            # One place more, for padding.
            self.globals_ = torch.zeros(batch, self.capacity + 1, dtype=torch.bool, device=device)
        new = torch.zeros(batch, n, dtype=torch.bool, device=device)
        new = new if globals_ is None else globals_
        if isinstance(mask.q_index, int):
            self.globals_[:, mask.q_index : mask.q_index + n] = new
        else:
            rows = torch.arange(batch, device=device)[:, None]
            self.globals_[rows, mask.q_index] = new
        return replace(mask, globals_=self.globals_[:, : mask.n_keys]), positions

    def _place(
        self, batch: int, n: int, valid: Bool[Tensor, "b n"] | None, device: torch.device
    ) -> tuple[Mask, Int[Tensor, "#b n"]]:
        if self.fixed:
            return self._place_fixed(n, device)
        if valid is not None and bool(valid.all()):
            valid = None
        if valid is None and isinstance(self.lengths, int):
            start = self.lengths
            self._require(start + n)
            self.lengths = self.longest = start + n
            positions = torch.arange(start, start + n, device=device)[None]
            return Mask(n, start + n, q_index=start), positions
        before = self.lengths
        if isinstance(before, int):
            before = torch.full((batch,), before, device=device)
        if valid is None:
            positions = before[:, None] + torch.arange(n, device=device)
            q_index, lengths, longest = positions, before + n, self.longest + n
            self._require(longest)
        else:
            positions = (before[:, None] + valid.cumsum(1) - 1).clamp(min=0)
            lengths = before + valid.sum(1)
            longest = int(lengths.max())
            self._require(longest)
            q_index = positions.where(valid, self.capacity)
        self.lengths, self.longest = lengths, longest
        return Mask(n, longest, q_index=q_index, padded=valid is not None), positions

    def fix_shapes(self, batch: int, device: torch.device) -> None:
        """Show all slots, the unused ones masked, from now on: every step has the same shapes, so
        one compiled graph serves them all. Rows stay, padding and checks of the capacity end; what
        a full row is given falls on its last slot.
        """
        if isinstance(self.lengths, int):
            self.lengths = torch.full((batch,), self.lengths, device=device)
        self.fixed, self.longest = True, self.capacity

    def _place_fixed(self, n: int, device: torch.device) -> tuple[Mask, Int[Tensor, "#b n"]]:
        assert isinstance(self.lengths, Tensor)
        positions = self.lengths[:, None] + torch.arange(n, device=device)
        positions = positions.clamp(max=self.capacity - 1)
        self.lengths = self.lengths + n
        return Mask(n, self.capacity, q_index=positions), positions

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens of each row."""
        if length < self.longest:
            for layer in self.layers:
                layer.crop(length)
        self.longest = min(self.longest, length)
        if isinstance(self.lengths, int):
            self.lengths = self.longest
        else:
            self.lengths = self.lengths.clamp(max=length)

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        """Keep `rows` of the batch, in this order (rows may repeat)."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.globals_ is not None:
            self.globals_ = self.globals_[rows]
        if isinstance(self.lengths, Tensor):
            self.lengths = self.lengths[rows]
            kept = self.lengths.tolist()
            self.longest = max(kept, default=0)
            if len(set(kept)) == 1:
                # Rows that agree take the short way again: slices and no mask tensor.
                self.lengths = self.longest

    def bytes_per_token(self) -> int:
        """Bytes that one more token of one row takes in all layers."""
        return sum(layer.bytes_per_token() for layer in self.layers)

    def _require(self, length: int) -> None:
        if length > self.capacity:
            raise RequestError(
                f"the cache holds {self.capacity} tokens a row and {length} are needed: "
                "make it longer (model.new_cache) or stop earlier."
            )
