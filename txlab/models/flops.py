"""Parameters and FLOPs of a model, counted from its modules.

A multiply-add is 2 FLOPs. Weights of matrix products count as often as a token meets them; what a
mixer computes beside its weights is counted by torch's own counter on tensors without numbers,
which take no memory and no time, unless the mixer says it itself (`Mixer.flops`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from txlab.core.errors import RunError
from txlab.nn.attention.mixer import Mixer
from txlab.nn.backend.math import Math
from txlab.nn.cache import Cache, LayerCache
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN
from txlab.nn.ffn.grouped import GroupedLinear
from txlab.nn.ffn.router import Router
from txlab.nn.mask import Mask
from txlab.nn.position import NoPosition, Position
from txlab.nn.stack import Stack

MATRICES = (nn.Linear, GroupedLinear, Router)
"""Modules whose `weight` meets every token that they are given in a matrix product."""
SAMPLE = 512
"""Queries that the share of visible keys is read from."""


def shares(model: nn.Module) -> dict[Tensor, float]:
    """Share of the tokens that each parameter meets: below 1 in experts that tokens choose and
    in what only global tokens go through."""
    found: dict[Tensor, float] = dict.fromkeys(model.parameters(), 1.0)
    for part in (m for m in model.modules() if isinstance(m, FFN | Mixer)):
        for name, share in part.active.items():
            found |= dict.fromkeys(part.get_submodule(name).parameters(), share)
    return found


def parameters(model: nn.Module) -> tuple[int, int]:
    """(all, those that one token meets); tied ones once."""
    met = shares(model)
    total = sum(p.numel() for p in met)
    return total, round(sum(share * p.numel() for p, share in met.items()))


def matrices(model: nn.Module) -> Iterator[tuple[Tensor, float]]:
    """(weight, share of tokens) of every matrix product with a weight, a tied head included."""
    met = shares(model)
    for module in model.modules():
        if isinstance(module, MATRICES):
            yield module.weight, met.get(module.weight, 1.0)


def weight_flops(model: nn.Module) -> float:
    """Forward FLOPs a token of all products with weights."""
    return sum(2.0 * share * weight.numel() for weight, share in matrices(model))


def train_flops(model: Any, context: int, *, causal: bool = True) -> float:
    """FLOPs of a training step for one token: forward, and twice that backward.

    A frozen weight has no gradient of its own, so it counts twice instead of three times. Attention
    counts the keys that a token sees on average (`causal`: half of the context, without a window);
    not halved, it is what the `math` backend computes. A lookup in an embedding is free.
    Recomputation is not counted, nor is what an objective's reference computes.
    """
    products = sum(
        (6.0 if weight.requires_grad else 4.0) * share * weight.numel()
        for weight, share in matrices(model)
    )
    return products + 3.0 * sum(mixing(model, context, causal=causal))


def mixing(model: Any, context: int, *, causal: bool = True) -> list[float]:
    """Forward FLOPs a token of each of `mixers` beside its weights, a mean over `context`."""
    found: list[float] = []
    known: dict[Any, float] = {}
    for mixer, position in standing(model):
        key = alike(mixer), position.rotates
        if key not in known:
            known[key] = _mixing(mixer, position, context, causal=causal)
        found.append(known[key])
    return found


def decode_flops(model: Any, context: int) -> float:
    """FLOPs of one more token after `context - 1` others, from the cache, head included."""
    known: dict[Any, float] = {}
    total = 0.0
    for mixer, position in standing(model):
        key = alike(mixer), position.rotates
        if key not in known:
            known[key] = _decoding(mixer, position, context)
        total += known[key] - weight_flops(mixer)
    return total + weight_flops(model)


def mixers(model: Any) -> list[Mixer]:
    """The mixer of every layer, in order."""
    return [m for m in model.modules() if isinstance(m, Mixer)]


def standing(model: Any) -> list[tuple[Mixer, Position]]:
    """Every mixer with a stand-in for its layer's positional scheme."""
    stacks = [m for m in model.modules() if isinstance(m, Stack)]
    turned = {
        block.attn
        for stack in stacks
        for block, scheme in zip(stack.blocks(), stack.schemes(), strict=True)
        if scheme.rotates
    }
    dims = model.dims
    plain, turns = (kind(NoPosition.Config(), dims) for kind in (NoPosition, Turns))
    return [(mixer, turns if mixer in turned else plain) for mixer in mixers(model)]


class Turns(NoPosition):
    """Gives back others than it was given, which is all that a count of products has to know."""

    rotates = True

    def rotate(self, q: Tensor, k: Tensor, angles: Any) -> tuple[Tensor, Tensor]:
        return q.clone(), k.clone()


def alike(mixer: Mixer) -> Any:
    """What tells mixers apart that cost the same: class, shapes and plain settings."""
    settings = {k: v for k, v in vars(mixer).items() if isinstance(v, int | float | str | None)}
    shapes = [(name, tuple(p.shape)) for name, p in mixer.named_parameters()]
    return type(mixer), tuple(shapes), tuple(sorted(settings.items(), key=str))


def _mixing(mixer: Mixer, position: Position, context: int, *, causal: bool) -> float:
    said = mixer.flops(context)
    if said is not None:
        return said
    with FakeTensorMode():
        mask, positions = Mask(context, context), torch.arange(context)[None]
        tensors = stand_ins(mixer, lambda t: torch.empty(t.shape, dtype=t.dtype))
        total = _counted(mixer, position, tensors, context, mask, positions, None)
    beside = total / context - weight_flops(mixer)
    if not (causal and mixer.attends):
        return beside
    return beside * visible(mixer.narrow(mask))


def _decoding(mixer: Mixer, position: Position, context: int) -> float:
    said = mixer.flops(context, decoding=True)
    if said is not None:
        return said + weight_flops(mixer)
    # For real, since caches look at what they hold; the weights are one zero, seen many times.
    cpu = torch.device("cpu")
    tensors = stand_ins(mixer, lambda t: torch.zeros((), dtype=t.dtype).expand(t.shape))
    layer = mixer.new_cache(1, context, cpu, dtype_of(tensors))
    cache = Cache([layer], context, lengths=context - 1, longest=context - 1)
    mask, positions = cache.place(1, 1, None, cpu)
    return _counted(mixer, position, tensors, 1, mask, positions, layer)


def stand_ins(mixer: Mixer, make: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Parameters and buffers by name, each as `make` makes it."""
    own = {name: nn.Parameter(make(p), requires_grad=False) for name, p in mixer.named_parameters()}
    return {**own, **{name: make(b) for name, b in mixer.named_buffers()}}


def dtype_of(tensors: dict[str, Tensor]) -> torch.dtype:
    """What the tensors compute in."""
    return next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.float32)


def _counted(
    mixer: Mixer,
    position: Position,
    tensors: dict[str, Tensor],
    n: int,
    mask: Mask,
    positions: Tensor,
    cache: LayerCache | None,
) -> float:
    """FLOPs of the mixer with these tensors for `n` tokens of one row, by torch's counter."""
    dims = position.dims
    backend = Math(Math.Config(), dims)
    x = torch.zeros(1, n, dims.dim, dtype=dtype_of(tensors))
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            ctx = Context(mask, positions, position, position.prepare(positions), backend)
            torch.func.functional_call(mixer, tensors, (x, ctx, cache))
    except Exception as error:  # whatever a stranger's mixer cannot do without numbers
        reason = " ".join(str(error).split())
        raise RunError(
            f"the FLOPs of {type(mixer).__name__} cannot be counted by running it without numbers "
            f"({type(error).__name__}: {reason}): give it a method flops()."
        ) from error
    return float(counter.get_total_flops())


def visible(mask: Mask) -> float:
    """Share of query and key pairs that the mask shows, read from evenly spaced queries."""
    n = mask.n_keys
    count = min(n, SAMPLE)
    queries = ((torch.arange(count) + 0.5) * n / count).long()
    one = torch.zeros(1, 1, 1, 1, dtype=torch.long)
    keys = torch.arange(n).view(1, 1, 1, -1)
    shown = 0.0
    for some in queries.split(64):
        seen = mask.allowed(one, one, some.view(1, 1, -1, 1), keys)
        shown += float(seen.double().mean()) * len(some)
    return shown / count
