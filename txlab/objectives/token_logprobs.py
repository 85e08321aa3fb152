"""Log-probability of each label under a linear head; the logits never exist all at once."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from txlab.data.batch import IGNORE
from txlab.objectives.vocabulary import Share, share_of


def token_logprobs(
    states: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    labels: Int[Tensor, " n"],
    *,
    chunk: int = 1024,
) -> Float[Tensor, " n"]:
    """log softmax(states @ weight.T) at each row's label; 0 without gradient where it is IGNORE.

    For losses that weigh tokens afterwards: the backward makes the logits again, so `chunk` rows of
    them exist at a time. Under autocast the matrix products run in its dtype, all else in float32;
    the result has at least float32. A weight that is cut by rows over ranks (a DTensor) gives what
    the whole one would.
    """
    device, dtype = states.device.type, states.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    weight, share = share_of(weight)
    with torch.autocast(device, enabled=False):
        return _TokenLogprobs.apply(states, weight, labels, chunk, dtype, share)


class _TokenLogprobs(torch.autograd.Function):
    """Saves its inputs and each row's logsumexp; two passes over the logits, one a direction."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        labels: Tensor,
        chunk: int,
        dtype: torch.dtype,
        share: Share | None,
    ) -> Tensor:
        exact = torch.promote_types(dtype, torch.float32)
        kept = (labels != IGNORE).nonzero().squeeze(1)
        rows, targets = states[kept], labels[kept].unsqueeze(1)
        there: Tensor | None = None
        if share is not None:
            targets, there = share.find(targets)
        matrix = weight.to(dtype)
        lse = torch.empty(len(rows), 1, dtype=exact, device=states.device)
        at_label = torch.empty_like(lse)
        for start in range(0, len(rows), chunk):
            part = slice(start, start + chunk)
            logits = (rows[part].to(dtype) @ matrix.T).to(exact)
            at_label[part] = logits.gather(1, targets[part])
            lse[part] = logits.logsumexp(1, keepdim=True)
        if share is not None and there is not None:
            top = share.max(lse)
            at_label, lse = share.sum(at_label * there, (lse - top).exp())
            lse = lse.log() + top
        ctx.save_for_backward(states, weight, kept, targets, lse, there)
        ctx.chunk, ctx.dtype, ctx.share = chunk, dtype, share
        found = torch.zeros(len(labels), dtype=exact, device=states.device)
        return found.index_copy_(0, kept, (at_label - lse).squeeze(1))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        states, weight, kept, targets, lse, there = ctx.saved_tensors
        dtype, exact = ctx.dtype, lse.dtype
        rows, matrix, slopes = states[kept], weight.to(dtype), grad[kept].unsqueeze(1)
        grad_rows = torch.empty_like(rows) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if ctx.needs_input_grad[1] else None
        for start in range(0, len(rows), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            h, y = rows[part].to(dtype), targets[part]
            probabilities = (h @ matrix.T).to(exact).sub_(lse[part]).exp_()
            # d logp / d logits = onehot - p
            ones = torch.full_like(y, -1, dtype=exact)
            probabilities.scatter_add_(1, y, ones if there is None else ones * there[part])
            slope = probabilities.mul_(-slopes[part]).to(dtype)
            if grad_rows is not None:
                grad_rows[part] = slope @ matrix
            if grad_weight is not None:
                grad_weight += slope.T @ h
        grad_states = None
        if grad_rows is not None and ctx.share is not None:
            (grad_rows,) = ctx.share.sum(grad_rows)
        if grad_rows is not None:
            grad_states = torch.zeros_like(states).index_copy_(0, kept, grad_rows)
        return (
            grad_states,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            *[None] * 4,
        )
