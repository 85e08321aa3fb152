"""FlashAttention in readable form: softmax attention tile by tile, in one pass over the keys."""

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.nn.mask import Mask, Score


def online_attention(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b g s k"],
    v: Float[Tensor, "b g s v"],
    mask: Mask,
    *,
    scale: float,
    tile: int = 16,
    score: Score | None = None,
    softcap: float | None = None,
    sink_logit: Float[Tensor, "h"] | None = None,
) -> Float[Tensor, "b h t v"]:
    """`Backend.attend` as Dao et al. 2022 (algorithm 1) stream it; the definition of the update.

    No more than `tile` x `tile` scores exist at a time. Milakov & Gimelshein 2018 showed that a
    softmax needs one pass: keep the largest score so far and rescale what was summed under the old
    one. The kernels do this in fast memory; here it is done in plain sight, and slowly.
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    queries, keys = torch.arange(q.shape[2]).split(tile), torch.arange(k.shape[2]).split(tile)
    rows = []
    for at in queries:
        state = start(q[:, :, at], v.shape[-1], sink_logit)
        for to in keys:
            seen = mask.part(at, to)
            if not seen.any():
                continue  # what makes a causal mask cost half, and a window next to nothing
            scores = q[:, :, at] @ k[:, :, to].transpose(-1, -2) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            if score is not None:
                scores = scores + mask.bias(score, q.shape[1], q.device, at, to)
            state = update(*state, scores.masked_fill(~seen, float("-inf")), v[:, :, to])
        _, total, y = state
        rows.append(y / total.where(total > 0, 1.0))  # a query that saw nothing yields zeros
    return torch.cat(rows, 2)


State = tuple[Float[Tensor, "b h t 1"], Float[Tensor, "b h t 1"], Float[Tensor, "b h t v"]]
"""Of each query: the largest score so far, the sum of exp(score - largest), and that of the values
under the same weights."""


def start(q: Float[Tensor, "b h t k"], width: int, sink_logit: Tensor | None) -> State:
    """Before any key: nothing, or the sink alone, whose value is zero."""
    b, h, t, _ = q.shape
    nothing = q.new_zeros(b, h, t, width)
    if sink_logit is None:
        lowest = q.new_full((b, h, t, 1), torch.finfo(q.dtype).min)
        return lowest, torch.zeros_like(lowest), nothing
    largest = sink_logit.to(q.dtype).view(1, h, 1, 1).expand(b, h, t, 1)
    return largest, torch.ones_like(largest), nothing


def update(
    largest: Float[Tensor, "b h t 1"],
    total: Float[Tensor, "b h t 1"],
    y: Float[Tensor, "b h t v"],
    scores: Float[Tensor, "b h t s"],
    v: Float[Tensor, "b h s v"],
) -> State:
    """The state after one more tile of keys, hidden ones at -inf."""
    higher = torch.maximum(largest, scores.amax(-1, keepdim=True))
    before, weights = (largest - higher).exp(), (scores - higher).exp()
    return (
        higher,
        total * before + weights.sum(-1, keepdim=True),
        y * before + weights @ v,
    )
