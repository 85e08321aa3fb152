"""A mask is a description of who may see whom; backends lower it to what their kernel takes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Score = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Bias of head h between query index q and key index k; all three broadcastable index tensors."""


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys each query may see. Indices count tokens along the key axis.

    Without a cache, query i is key i. With one, `q_index[b, i]` is the key index of query i.
    The definition is `allowed`; everything else in this class is a short cut to it.
    """

    n_queries: int
    n_keys: int
    causal: bool = True
    window: int | None = None
    """A query sees itself and the `window - 1` keys before it (and after it, when not causal)."""
    documents: Int[Tensor, "b t"] | None = None
    """Tokens see only their own document. Self-attention without cache."""
    valid: Bool[Tensor, "b k"] | None = None
    """Keys that exist; False at padding."""
    q_index: Int[Tensor, "b q"] | int = 0
    """Key index of each query; an int is the index of the first one, the same in all rows."""
    padded: bool = False
    """Some queries behind a cache are padding; their index lies beyond all keys."""
    _memo: dict[Any, Tensor] = field(default_factory=dict, repr=False)

    def allowed(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """True where query q of row b may see key k; any broadcastable index tensors."""
        index = self.index_of(b, q)
        seen = k >= 0
        if self.causal:
            seen = seen & (k <= index)
        if self.window is not None:
            distance = index - k
            seen = seen & (distance < self.window) & (distance > -self.window)
        if self.documents is not None:
            seen = seen & (self.documents[b, q] == self.documents[b, k])
        if self.valid is not None:
            seen = seen & self.valid[b, k]
        return seen

    def index_of(self, b: Tensor, q: Tensor) -> Tensor:
        """Key index of query q of row b."""
        return self.q_index[b, q] if isinstance(self.q_index, Tensor) else q + self.q_index

    def narrow(self, *, window: int | None) -> "Mask":
        """This mask with a window as well; a window that hides nothing is left out."""
        if window is None or window >= self.n_keys or window == self.window:
            return self
        return dataclasses.replace(self, window=min(window, self.window or window))

    @property
    def plain(self) -> str | None:
        """'causal' or 'full' where the kernel's own flag says it all; None where it does not."""
        if self.window is not None or self.documents is not None or self.valid is not None:
            return None
        if not self.causal:
            return "full"
        if isinstance(self.q_index, Tensor):
            return None
        if self.q_index == 0 and self.n_queries == self.n_keys:
            return "causal"
        return "full" if self.n_queries == 1 and self.q_index + 1 >= self.n_keys else None

    @property
    def may_blind(self) -> bool:
        """Whether a query may see no key at all (a token sees itself, unless it is padding)."""
        return self.valid is not None or (self.padded and self.window is not None)

    def dense(self, device: torch.device) -> Bool[Tensor, "b 1 q k"]:
        """The whole predicate as a tensor (batch axis 1 where rows agree); made once per window."""
        key = ("dense", self.window)
        if key not in self._memo:
            self._memo[key] = self.allowed(*self._axes(1, device))
        return self._memo[key]

    def bias(self, score: Score, n_heads: int, device: torch.device) -> Float[Tensor, "b h q k"]:
        """The score of every head, query and key as a tensor (batch axis 1 where rows agree)."""
        key = ("bias", score)
        if key not in self._memo:
            b, h, q, k = self._axes(n_heads, device)
            self._memo[key] = score(h, self.index_of(b, q), k)
        return self._memo[key]

    def _axes(self, n_heads: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        carriers = (self.documents, self.valid, self.q_index)
        rows = next((x.shape[0] for x in carriers if isinstance(x, Tensor)), 1)
        return (
            torch.arange(rows, device=device).view(-1, 1, 1, 1),
            torch.arange(n_heads, device=device).view(1, -1, 1, 1),
            torch.arange(self.n_queries, device=device).view(1, 1, -1, 1),
            torch.arange(self.n_keys, device=device).view(1, 1, 1, -1),
        )
