"""A mask is a description of who may see whom; backends lower it to what their kernel takes."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys each query may see. Indices count tokens along the key axis.

    Without a cache, query i is key i. With one, `q_index[b, i]` is the key index of query i of row b.
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
    _memo: dict[Any, Tensor] = field(default_factory=dict, repr=False)

    def allowed(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """True where query q of row b may see key k; any broadcastable index tensors."""
        index = self.q_index[b, q] if isinstance(self.q_index, Tensor) else q + self.q_index
        seen = (k >= 0) & (h >= 0) & (b >= 0)
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

    def narrow(self, *, window: int | None) -> "Mask":
        """This mask with a window as well; a window that hides nothing is left out."""
        if window is None or window >= self.n_keys:
            return self
        return dataclasses.replace(self, window=window)

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

    def dense(self, device: torch.device) -> Bool[Tensor, "b 1 q k"]:
        """The whole predicate as a tensor (batch axis 1 where rows agree); made once per window."""
        key = (self.window, device)
        if key not in self._memo:
            rows = next(
                (x.shape[0] for x in (self.documents, self.valid, self.q_index) if isinstance(x, Tensor)), 1
            )
            axis = lambda n, *shape: torch.arange(n, device=device).view(shape)  # noqa: E731
            self._memo[key] = self.allowed(
                axis(rows, -1, 1, 1, 1),
                axis(1, 1, 1, 1, 1),
                axis(self.n_queries, 1, 1, -1, 1),
                axis(self.n_keys, 1, 1, 1, -1),
            )
        return self._memo[key]
