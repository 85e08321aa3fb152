"""A mask is a description of who may see whom; backends lower it to what their kernel takes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from txlab.nn.blocks import BlockGraph

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
    """A query sees itself and the `window - 1` tokens before it (and after it, when not causal);
    padding between them does not count."""
    sinks: int = 0
    """The first tokens of each document (of a row, without documents) that the window spares."""
    documents: Int[Tensor, "b t"] | None = None
    """Tokens see only their own document. Self-attention without cache."""
    valid: Bool[Tensor, "b k"] | None = None
    """Keys that exist; False at padding."""
    q_index: Int[Tensor, "b q"] | int = 0
    """Key index of each query; an int is the index of the first one, the same in all rows."""
    padded: bool = False
    """Some queries behind a cache are padding; their index lies beyond all keys."""
    slots: Int[Tensor, "b k"] | None = None
    """Key index of each key where keys stand in no order (a ring cache); -1: an empty slot."""
    globals_: Bool[Tensor, "#b k"] | None = None
    """Keys named as global; they count in masks that spare them."""
    spares_globals: bool = False
    """Global keys are seen beyond the window."""
    blocks: BlockGraph | None = None
    """Tokens see only those in a block that is joined to theirs; blocks begin anew in each
    document and padding takes no room in them."""
    sees_all: bool = False
    """Every query sees every key: told by whoever made the mask, so that nobody need look."""
    _memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    def allowed(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """True where query q of row b may see key k; any broadcastable index tensors."""
        query, key = self.index_of(b, q), self.key_of(b, k)
        seen = key >= 0
        if self.causal:
            seen = seen & (key <= query)
        if self.window is not None:
            distance = self._place(b, query) - self._place(b, key)
            near = (distance < self.window) & (distance > -self.window)
            if self.sinks:
                near = near | (self._rank(b, k) < self.sinks)
            if self.spares_globals and self.globals_ is not None:
                near = near | _at(self.globals_, b, k)
            seen = seen & near
        if self.blocks is not None:
            place = query if self.slots is not None else self._rank(b, query)
            size = self.blocks.size
            seen = seen & self.blocks.joined(place // size, self._rank(b, k) // size)
        if self.documents is not None:
            seen = seen & (_at(self.documents, b, query) == _at(self.documents, b, k))
        if self.valid is not None:
            seen = seen & _at(self.valid, b, k)
        return seen

    def index_of(self, b: Tensor, q: Tensor) -> Tensor:
        """Key index of query q of row b."""
        return self.q_index[b, q] if isinstance(self.q_index, Tensor) else q + self.q_index

    def key_of(self, b: Tensor, k: Tensor) -> Tensor:
        """Key index of key k of row b: k itself where keys stand in order."""
        return k if self.slots is None else self.slots[b, k]

    def narrow(
        self,
        *,
        window: int | None = None,
        sinks: int = 0,
        spares_globals: bool = False,
        blocks: BlockGraph | None = None,
    ) -> "Mask":
        """This mask with a window as well, but for the first `sinks` tokens of each document and,
        if said so, global keys; and with blocks. What hides nothing is left out."""
        mask = self
        if blocks is not None and not blocks.joins_all(self.n_keys):
            mask = dataclasses.replace(mask, blocks=blocks)
        if window is None or window >= self.n_keys or window == self.window:
            return mask
        return dataclasses.replace(
            mask,
            window=min(window, self.window or window),
            sinks=sinks,
            spares_globals=spares_globals,
        )

    def of(self, queries: Int[Tensor, "b m"] | int) -> "Mask":
        """What some of the queries may see with neither window nor blocks: those at these places
        of each row, or the first ones."""
        index, n = self.q_index, queries
        if isinstance(queries, Tensor):
            n = queries.shape[1]
            if isinstance(index, Tensor):
                rows = max(len(index), len(queries))
                index = index.expand(rows, -1).gather(1, queries.expand(rows, -1))
            else:
                index = queries + index
        elif isinstance(index, Tensor):
            index = index[:, :queries]
        return dataclasses.replace(
            self, n_queries=n, q_index=index, window=None, sinks=0, blocks=None, _memo={}
        )

    @property
    def plain(self) -> str | None:
        """'causal' or 'full' where the kernel's own flag says it all; None where it does not."""
        if self.sees_all:
            return "full"
        parts = (self.window, self.documents, self.valid, self.slots, self.blocks)
        if any(part is not None for part in parts):
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

    @property
    def rows(self) -> int:
        """Rows that it tells apart: 1 where all are alike."""
        named = self.globals_ if self.spares_globals else None
        carriers = (self.documents, self.valid, self.q_index, self.slots, named)
        return max([1, *(x.shape[0] for x in carriers if isinstance(x, Tensor))])

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this mask from the others narrowed from the same one."""
        return self.window, self.sinks, self.spares_globals, self.blocks

    def memo(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for this mask and those narrowed to the same."""
        key = (*key, self.key)
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def known(self, key: tuple[Any, ...]) -> bool:
        """Whether `memo` has that already."""
        return (*key, self.key) in self._memo

    def dense(self, device: torch.device) -> Bool[Tensor, "b 1 q k"]:
        """The whole predicate as a tensor (batch axis 1 where rows agree); made once."""
        return self.memo(("dense",), lambda: self.allowed(*self._axes(1, device)))

    def part(self, queries: Int[Tensor, "q"], keys: Int[Tensor, "k"]) -> Bool[Tensor, "#b 1 #q #k"]:
        """The predicate for some queries and keys only."""
        return self.allowed(*self._axes(1, queries.device, queries, keys))

    def bias(
        self,
        score: Score,
        n_heads: int,
        device: torch.device,
        queries: Int[Tensor, "q"] | None = None,
        keys: Int[Tensor, "k"] | None = None,
    ) -> Float[Tensor, "#b #h #q #k"]:
        """The score of every head, query and key as a tensor (batch axis 1 where rows agree);
        that of all queries and keys is made once."""

        def make() -> Tensor:
            b, h, q, k = self._axes(n_heads, device, queries, keys)
            return score(h, self.query_place(b, q), self.key_place(b, k))

        return self.memo(("bias", score), make) if queries is None else make()

    def query_place(self, b: Tensor, q: Tensor) -> Tensor:
        """Where query q of row b stands among the row's tokens, for differences of places."""
        return self._place(b, self.index_of(b, q))

    def key_place(self, b: Tensor, k: Tensor) -> Tensor:
        """The same of key k."""
        return self._place(b, self.key_of(b, k))

    def _place(self, b: Tensor, index: Tensor) -> Tensor:
        return _at(self.places(), b, index) if self.gapped else index

    @property
    def gapped(self) -> bool:
        """Whether padding may stand between tokens of a row, so that indices do not tell how far
        apart two of them are. Read from `valid` once; a graph being traced takes it for granted."""
        if self.valid is None or self.slots is not None:
            return False
        if "gapped" not in self._memo:
            if torch.compiler.is_compiling():
                return True
            begun = (self.valid[:, 1:] & ~self.valid[:, :-1]).sum(1) + self.valid[:, 0]
            self._memo["gapped"] = bool((begun > 1).any())
        return self._memo["gapped"]

    def places(self) -> Int[Tensor, "#b k"]:
        """Number of tokens before each key in its row, padding left out."""
        valid = self.valid
        assert valid is not None
        return self.memo(("places",), lambda: valid.cumsum(1) - valid.long())

    def _rank(self, b: Tensor, k: Tensor) -> Tensor:
        """How many tokens of its document (of its row) stand before key k of row b."""
        if self.slots is not None or (self.documents is None and self.valid is None):
            return self.key_of(b, k)
        return _at(self.ranks(), b, k)

    def ranks(self) -> Int[Tensor, "b k"]:
        """Number of tokens before each key in its document, padding left out."""

        def make() -> Tensor:
            like = self.valid if self.documents is None else self.documents
            assert like is not None
            there = torch.ones_like(like, dtype=torch.long)
            if self.valid is not None:
                there = self.valid.long().expand_as(there)
            before = there.cumsum(1) - there
            return before - before.gather(1, self.starts().expand_as(before))

        return self.memo(("ranks",), make)

    def starts(self) -> Int[Tensor, "b k"]:
        """Index of the first token of each token's document (0 without documents)."""
        if self.documents is None:
            assert self.valid is not None
            return torch.zeros_like(self.valid, dtype=torch.long)
        index = torch.arange(self.n_keys, device=self.documents.device)
        new = torch.ones_like(self.documents, dtype=torch.bool)
        new[:, 1:] = self.documents[:, 1:] != self.documents[:, :-1]
        return index.where(new, 0).cummax(1).values

    def _axes(
        self,
        n_heads: int,
        device: torch.device,
        queries: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        queries = torch.arange(self.n_queries, device=device) if queries is None else queries
        keys = torch.arange(self.n_keys, device=device) if keys is None else keys
        return (
            torch.arange(self.rows, device=device).view(-1, 1, 1, 1),
            torch.arange(n_heads, device=device).view(1, -1, 1, 1),
            queries.view(1, 1, -1, 1),
            keys.view(1, 1, 1, -1),
        )


def _at(x: Tensor, b: Tensor, i: Tensor) -> Tensor:
    """x[b, i], where a single row of x stands for all."""
    return x[0][i] if x.shape[0] == 1 else x[b, i]
