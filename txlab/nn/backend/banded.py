"""Attention run by run: queries against the keys that one of them may see, no others."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._compile import _disable_dynamo

from txlab.core.config import Dims
from txlab.nn.backend.backend import Backend, backend
from txlab.nn.backend.bands import Bands, bands, pieces
from txlab.nn.backend.math import softmax_attention
from txlab.nn.backend.sdpa import fused_attention
from txlab.nn.mask import Mask, Score


class How(NamedTuple):
    """What `Backend.attend` is asked beside the mask."""

    scale: float
    score: Score | None
    softcap: float | None
    sink_logit: Float[Tensor, "h"] | None
    dropout: float


class Run(NamedTuple):
    """A run of queries, the keys it needs, and the mask between the two."""

    queries: Tensor
    keys: Tensor
    seen: Bool[Tensor, "b 1 q k"] | None
    """Queries that see nothing see all here, as `sdpa.visible` has it; None: all is seen."""
    sighted: Bool[Tensor, "b 1 q 1"] | None
    """Queries that see something; None: all of them."""


@backend("banded")
class Banded(Backend):
    """Runs of queries, each against its own range of keys: time and memory follow what is seen.

    A window costs T * W, packed documents the sum of their squares, a causal mask with a score
    half of all pairs. Any device and feature. One run where a mask gives no ranges: keys out of
    order; in a compiled graph what only the numbers of a mask could tell (documents) runs outside.
    """

    @dataclass
    class Config(Backend.Config):
        """Fields of the cut."""

        run: int = 256
        """Queries in a run, and keys in a block: small ones follow the mask closer, large ones
        keep the kernel busier."""

        def __post_init__(self) -> None:
            self.require(self.run > 0, "run", "a number above 0")

    supports = frozenset({"softcap", "score", "sink_logit", "dropout"})

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.run = config.run

    def prepare(self, mask: Mask, x: Tensor) -> None:
        if pieces(mask) is not None:
            return
        cut = bands(mask, self.run)
        if cut is not None:
            runs(mask, cut, x.device)

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        *,
        scale: float,
        score: Score | None = None,
        softcap: float | None = None,
        sink_logit: Float[Tensor, "h"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "b h t v"]:
        how = How(scale, score, softcap, sink_logit, dropout)
        if score is None and pieces(mask) is not None:
            apart = apart_outside if torch.compiler.is_compiling() else by_documents
            return apart(q, k, v, mask, self.run, how)
        cut = bands(mask, self.run) or whole(mask)
        inside = runs_outside if cut.measured and torch.compiler.is_compiling() else by_runs
        return inside(q, k, v, mask, cut, how)


def whole(mask: Mask) -> Bands:
    """All queries and all keys as one run."""
    size = max(mask.n_queries, mask.n_keys)
    return Bands(size, ((0,),), measured=False, share=1.0)


def by_runs(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, cut: Bands, how: How
) -> Float[Tensor, "b h t v"]:
    """`Backend.attend`, run by run."""
    # Blocks put together, not slices: the gradient of a slice is as long as the whole, which
    # would make the backward pass quadratic again.
    key_blocks, value_blocks = k.split(cut.size, 2), v.split(cut.size, 2)
    parts = []
    lowered = runs(mask, cut, q.device)
    for part, run, blocks in zip(q.split(cut.size, 2), lowered, cut.blocks, strict=True):
        keys = joined(key_blocks, blocks)
        values = joined(value_blocks, blocks)
        bias = None
        if how.score is not None:
            bias = mask.bias(how.score, q.shape[1], q.device, run.queries, run.keys)
        y = _dense(part, keys, values, run.seen, how, bias=bias)
        parts.append(y if run.sighted is None else y * run.sighted)
    return torch.cat(parts, 2)


def by_documents(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, size: int, how: How
) -> Float[Tensor, "b h t v"]:
    """`Backend.attend`, document by document: a plain mask each, runs where there is a window."""
    lengths = pieces(mask)
    assert lengths is not None
    lengths = lengths * (len(q) // len(lengths))  # one row of documents for all rows of queries
    each = [x.split(1) for x in (q, k, v)]
    rows = []
    for b, sizes in enumerate(lengths):
        queries, keys, values = (x[b].split(sizes, 2) for x in each)
        parts = []
        for i, n in enumerate(sizes):
            alone = mask.memo(("alone", n), lambda n=n: _alone(mask, n))
            parts.append(_document(queries[i], keys[i], values[i], alone, size, how))
        rows.append(torch.cat(parts, 2))
    return torch.cat(rows)


def _alone(mask: Mask, n: int) -> Mask:
    """The mask of one of its documents, n tokens long."""
    alone = Mask(n, n, causal=mask.causal)
    return alone.narrow(window=mask.window, sinks=mask.sinks, blocks=mask.blocks)


def _document(q: Tensor, k: Tensor, v: Tensor, mask: Mask, size: int, how: How) -> Tensor:
    if mask.plain == "full" or (mask.plain == "causal" and how.softcap is None):
        return _dense(q, k, v, None, how, causal=mask.plain == "causal")
    cut = bands(mask, size)
    assert cut is not None
    return by_runs(q, k, v, mask, cut, how)


def _dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor | None,
    how: How,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """One call of a dense kernel: the fused one, or with a cap the definition."""
    rest: Any = {
        "scale": how.scale,
        "bias": bias,
        "sink_logit": how.sink_logit,
        "dropout": how.dropout,
    }
    if how.softcap is None:
        return fused_attention(q, k, v, seen, causal=causal, **rest)
    return softmax_attention(q, k, v, seen, softcap=how.softcap, **rest)


OUTSIDE = (
    "model.backend=banded cuts this mask by its numbers, which no graph can: compile without "
    "fullgraph=True, or use model.backend=sdpa"
)
"""What a compiler says that may not leave its graph."""


def outside(function: Any) -> Callable[..., Tensor]:
    """The function as one that compiled graphs call, and never look into.

    By torch's own lazy form: torch.compiler.disable imports the whole compiler, a second at every
    start.
    """
    left: Any = _disable_dynamo(function)
    left._torchdynamo_disable, left._torchdynamo_disable_msg = True, OUTSIDE
    return left


runs_outside, apart_outside = outside(by_runs), outside(by_documents)


def joined(blocks: tuple[Tensor, ...], chosen: tuple[int, ...]) -> Float[Tensor, "b g s k"]:
    """The chosen blocks, one after another."""
    if len(chosen) == 1:
        return blocks[chosen[0]]
    return torch.cat([blocks[block] for block in chosen], 2)


def runs(mask: Mask, cut: Bands, device: torch.device) -> list[Run]:
    """The mask of every run, made once for all layers."""

    def make() -> list[Run]:
        queries = torch.arange(mask.n_queries, device=device).split(cut.size)
        keys = torch.arange(mask.n_keys, device=device).split(cut.size)
        found = []
        for n, (query, blocks) in enumerate(zip(queries, cut.blocks, strict=True)):
            places = torch.cat([keys[block] for block in blocks])
            like = alike(mask, cut, n)
            found.append(_lower(mask, query, places) if like is None else like(query, places))
        return found

    return mask.memo(("runs", cut.size), make)


def alike(mask: Mask, cut: Bands, n: int) -> Callable[[Tensor, Tensor], Run] | None:
    """Makes run n of a mask whose runs differ by their distances to keys alone: each kind of run
    has one tensor, for all layers; None where numbers of the mask or the place of a key count."""
    size, index = cut.size, mask.q_index
    tensors = (mask.documents, mask.valid, mask.slots, mask.globals_)
    if isinstance(index, Tensor) or mask.sinks or any(x is not None for x in tensors):
        return None
    if mask.blocks is not None:
        if mask.blocks.size != size or index % size:
            return None
        # Blocks of the graph are runs and blocks of the cut: whoever is there is joined.
        mask = dataclasses.replace(mask, blocks=None)
    first = index + n * size
    last = min(first + size, index + mask.n_queries) - 1
    kind = []
    for block in cut.blocks[n]:
        low, high = block * size, min((block + 1) * size, mask.n_keys) - 1
        hidden = mask.causal and high > first
        if mask.window is not None:
            hidden = hidden or max(last - low, high - first) >= mask.window
        kind.append((high - low, low - first if hidden else None))
    if all(place is None for _, place in kind):
        return lambda queries, keys: Run(queries, keys, None, None)

    def make(queries: Tensor, keys: Tensor) -> Run:
        key = ("run", last - first, *kind)
        seen = mask.memo(key, lambda: mask.part(queries, keys))
        return Run(queries, keys, seen, None)

    return make


def _lower(mask: Mask, queries: Tensor, keys: Tensor) -> Run:
    seen = mask.part(queries, keys)
    if not mask.may_blind:
        return Run(queries, keys, seen, None)
    sighted = seen.any(-1, keepdim=True)
    return Run(queries, keys, seen | ~sighted, sighted)
