"""Which keys each run of queries needs: a mask cut into blocks, once for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from txlab.nn.blocks import BlockGraph
from txlab.nn.mask import Mask


@dataclass(frozen=True)
class Bands:
    """For each run of `size` queries, the blocks of `size` keys that one of them may see."""

    size: int
    blocks: tuple[tuple[int, ...], ...]
    measured: bool
    """Whether the numbers of this very mask decided it, not its shape alone."""
    share: float
    """Blocks needed, as a share of all pairs of runs and blocks."""


def bands(mask: Mask, size: int) -> Bands | None:
    """The bands of `mask`, made once; None where keys stand in no order, or where a graph is being
    traced and numbers would have to be read from tensors."""
    if mask.slots is not None:
        return None
    # A graph of blocks needs no tensor, but is no work for a tracer either.
    measured = _reads(mask) or mask.blocks is not None
    if mask.blocks is not None:
        size = mask.blocks.size * max(1, FINE // mask.blocks.size)
    key = ("bands", size)
    if measured and torch.compiler.is_compiling() and not mask.known(key):
        return None
    return mask.memo(key, lambda: _cut(mask, size, measured))


def _reads(mask: Mask) -> bool:
    """Whether only the numbers of its tensors tell what a mask needs."""
    tensors = isinstance(mask.q_index, Tensor) or mask.documents is not None
    padded = mask.valid is not None and (mask.sinks > 0 or _stretched(mask))
    return tensors or mask.spares_globals or padded


def _stretched(mask: Mask) -> bool:
    """Whether a window spans more keys than it is wide: padding within it does not count."""
    return mask.window is not None and mask.gapped


FINE = 64
"""Queries of a run under a mask of blocks, where these are no longer than that."""
SHORT = 96
"""Mean length of documents below which a call for each costs more than it saves."""


def pieces(mask: Mask) -> tuple[tuple[int, ...], ...] | None:
    """Lengths of the documents in each row, where each can be attended by itself; made once.

    None where there are none, where they are short or mixed up, where padding stands between
    them, and while a graph is traced.
    """
    if mask.documents is None or mask.slots is not None or mask.spares_globals:
        return None
    if mask.n_queries != mask.n_keys or isinstance(mask.q_index, Tensor):
        return None
    if torch.compiler.is_compiling() and not mask.known(("pieces",)):
        return None
    return mask.memo(("pieces",), lambda: _pieces(mask))


def _pieces(mask: Mask) -> tuple[tuple[int, ...], ...] | None:
    documents = mask.documents
    assert documents is not None
    steps = documents.diff(dim=1)
    simple = (steps >= 0).all()
    if mask.valid is not None:
        simple = simple & mask.valid.all()
    if not simple:
        return None
    ends: list[list[int]] = [[] for _ in range(len(documents))]
    for row, place in steps.nonzero().tolist():
        ends[row].append(place + 1)
    if sum(map(len, ends)) + len(ends) > documents.numel() / SHORT:
        return None
    length = mask.n_keys
    return tuple(
        tuple(b - a for a, b in zip([0, *found], [*found, length], strict=True)) for found in ends
    )


def _cut(mask: Mask, size: int, measured: bool) -> Bands:
    numbers = _measured(mask, size) if _reads(mask) else _plain(mask, size)
    lows, highs, starts, sinks = numbers
    n_blocks = -(-mask.n_keys // size)
    found = []
    for low, high, start in zip(lows, highs, starts, strict=True):
        low = min(max(low, start, 0), mask.n_keys - 1) // size
        high = min(max(high, low * size), mask.n_keys - 1) // size
        before = [block for block in sinks if start // size <= block < low]
        after = [] if mask.causal else [block for block in sinks if block > high]
        found.append((*before, *range(low, high + 1), *after))
    if mask.blocks is not None:
        joined = linked(mask, mask.blocks, size)
        pairs = zip(found, joined, strict=True)
        found = [tuple(n for n in some if n in also) or some[:1] for some, also in pairs]
    share = sum(map(len, found)) / max(1, len(found) * n_blocks)
    return Bands(size, tuple(found), measured, share)


Numbers = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
"""Of each run: lowest and highest index of a key within order and window, lowest start of a
document; blocks that hold a sink or a global key."""


def _plain(mask: Mask, size: int) -> Numbers:
    assert isinstance(mask.q_index, int)
    begins = range(0, mask.n_queries, size)
    firsts = [mask.q_index + begin for begin in begins]
    lasts = [mask.q_index + min(begin + size, mask.n_queries) - 1 for begin in begins]
    lows, highs = _within(mask, firsts, lasts)
    n_sinks = min(mask.sinks, mask.n_keys)
    return lows, highs, [0] * len(firsts), range(-(-n_sinks // size))


def _within(
    mask: Mask, firsts: Sequence[int], lasts: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Lowest and highest index of a key that order and window leave to queries of these indices."""
    back = mask.n_keys if mask.window is None else mask.window - 1
    lows = [first - back for first in firsts]
    return lows, lasts if mask.causal else [last + back for last in lasts]


def _reach(mask: Mask) -> tuple[Tensor, Tensor]:
    """The same of each query [b q] of a row with padding in the window."""
    assert mask.window is not None
    places, back = mask.places(), mask.window - 1
    last = torch.arange(mask.n_keys, device=places.device).expand_as(places)
    low = torch.searchsorted(places, places - back)
    return low, last if mask.causal else torch.searchsorted(places, places + back, right=True) - 1


def _measured(mask: Mask, size: int) -> Numbers:
    """The same from the mask's tensors, brought to the host in one piece."""
    tensors = (mask.q_index, mask.documents, mask.valid, mask.globals_)
    carrier = next(x for x in tensors if isinstance(x, Tensor))
    index = mask.q_index
    if isinstance(index, int):
        index = torch.arange(index, index + mask.n_queries, device=carrier.device)[None]
    # Padding behind a cache has an index beyond all keys; it sees nothing that counts.
    stretched = _stretched(mask)
    low, high = _reach(mask) if stretched else (index, index.masked_fill(index >= mask.n_keys, -1))
    low, high = _runs(low, size, mask.n_keys).amin((0, 2)), _runs(high, size, -1).amax((0, 2))
    starts = torch.zeros_like(low)
    if mask.documents is not None:
        sorted_ = (mask.documents[:, 1:] >= mask.documents[:, :-1]).all()
        begun = mask.starts()
        if isinstance(mask.q_index, Tensor):
            begun = begun.expand(len(index), -1).gather(1, index)
        starts = (_runs(begun, size, mask.n_keys).amin((0, 2)) * sorted_).to(low.dtype)
    numbers = torch.cat([low, high, starts, _spared(mask, size, carrier.device)]).tolist()
    n = len(low)
    lows, highs = numbers[:n], numbers[n : 2 * n]
    if not stretched:
        lows, highs = _within(mask, lows, highs)
    holds = [block for block, sink in enumerate(numbers[3 * n :]) if sink]
    return lows, highs, numbers[2 * n : 3 * n], holds


def _runs(x: Tensor, size: int, fill: int) -> Tensor:
    """x [b t] as [b n size], the last run filled up."""
    missing = -x.shape[1] % size
    return torch.nn.functional.pad(x, (0, missing), value=fill).unflatten(1, (-1, size))


def _spared(mask: Mask, size: int, device: torch.device) -> Tensor:
    """1 for each block of keys that holds a sink or a global key, else 0."""
    spared = torch.zeros(1, mask.n_keys, dtype=torch.bool, device=device)
    if mask.sinks:
        ranked = mask.documents is not None or mask.valid is not None
        rank = mask.ranks() if ranked else torch.arange(mask.n_keys, device=device)[None]
        spared = rank < mask.sinks
    if mask.spares_globals and mask.globals_ is not None:
        spared = spared | mask.globals_
    return _runs(spared.long(), size, 0).amax((0, 2))


def linked(mask: Mask, graph: BlockGraph, size: int) -> list[set[int]]:
    """For each run of queries, the blocks of `size` keys that its graph joins with one of them."""
    if mask.documents is not None or mask.valid is not None or isinstance(mask.q_index, Tensor):
        return _seen(mask, size)
    there = -(-mask.n_keys // graph.size)
    joined = [set(graph.earlier(i)) for i in range(there)]
    if not mask.causal:
        for i, some in enumerate(joined):
            for j in [j for j in some if j < i]:
                joined[j].add(i)
    found = []
    for begin in range(0, mask.n_queries, size):
        first = mask.q_index + begin
        last = mask.q_index + min(begin + size, mask.n_queries) - 1
        some = set().union(*joined[first // graph.size : last // graph.size + 1])
        found.append({j * graph.size // size for j in some})
    return found


def _seen(mask: Mask, size: int) -> list[set[int]]:
    """The same for any mask, by looking at all pairs."""
    carrier = next(x for x in (mask.valid, mask.documents, mask.q_index) if isinstance(x, Tensor))
    keys = torch.arange(mask.n_keys, device=carrier.device)
    queries = torch.arange(mask.n_queries, device=carrier.device).split(size)
    each = [mask.part(run, keys).any(0)[0].any(0, keepdim=True).long() for run in queries]
    table = torch.stack([_runs(x, size, 0).amax((0, 2)) for x in each]).tolist()
    return [{n for n, seen in enumerate(row) if seen} for row in table]
