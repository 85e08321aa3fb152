"""Cross-entropy of a linear head, fused with it so that the logits never exist all at once."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from txlab.data.batch import IGNORE


def linear_ce_sum(
    states: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    labels: Int[Tensor, " n"],
    *,
    bias: Float[Tensor, " v"] | None = None,
    z_loss: float = 0.0,
    label_smoothing: float = 0.0,
    chunk: int = 1024,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """(loss, nll) of the logits `states @ weight.T + bias`, summed over labels that are not IGNORE.

    With lse the logsumexp of a row's logits x and y its label, s = `label_smoothing`:
    nll = lse - x_y; loss = (1 - s) nll + s (lse - mean(x)) + z_loss lse^2.
    nll has no graph. Gradients are made chunk by chunk in the forward pass, so `chunk` rows of
    logits exist at a time. Under autocast the matrix products run in its dtype, all else in
    float32.
    """
    device = states.device.type
    dtype = states.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    needed = [
        torch.is_grad_enabled() and x is not None and x.requires_grad
        for x in (states, weight, bias)
    ]
    with torch.autocast(device, enabled=False):
        return _LinearCE.apply(
            states, weight, bias, labels, z_loss, label_smoothing, chunk, dtype, needed
        )


class _LinearCE(torch.autograd.Function):
    """The function above; gradients are made beside the loss and only scaled in the backward."""

    @staticmethod
    def forward(ctx, states, weight, bias, labels, z_loss, smoothing, chunk, dtype, needed):
        exact = torch.promote_types(dtype, torch.float32)
        kept = (labels != IGNORE).nonzero().squeeze(1)
        whole = kept.numel() == labels.numel()
        rows, targets = (states, labels) if whole else (states[kept], labels[kept])
        rows, matrix = rows.to(dtype), weight.to(dtype)
        offset = None if bias is None else bias.to(exact)
        loss = torch.zeros((), dtype=exact, device=states.device)
        nll = torch.zeros_like(loss)
        grad_states = torch.empty_like(rows) if needed[0] else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if needed[1] else None
        grad_bias = torch.zeros_like(offset) if offset is not None and needed[2] else None
        for start in range(0, rows.shape[0], chunk):
            h, y = rows[start : start + chunk], targets[start : start + chunk].unsqueeze(1)
            logits = (h @ matrix.T).to(exact)
            if offset is not None:
                logits += offset
            at_label = logits.gather(1, y)
            mean = logits.mean(1, keepdim=True) if smoothing else at_label
            lse = torch.logsumexp(logits, 1, keepdim=True)
            nll += (lse - at_label).sum()
            loss += (lse - (1 - smoothing) * at_label - smoothing * mean + z_loss * lse * lse).sum()
            if not any(needed):
                continue
            slope = logits.sub_(lse).exp_()
            if z_loss:
                slope *= 1 + 2 * z_loss * lse
            if smoothing:
                slope -= smoothing / slope.shape[1]
            slope.scatter_add_(1, y, torch.full_like(at_label, smoothing - 1))
            if grad_bias is not None:
                grad_bias += slope.sum(0)
            slope = slope.to(dtype)
            if grad_states is not None:
                torch.mm(slope, matrix, out=grad_states[start : start + chunk])
            if grad_weight is not None:
                if dtype == exact:
                    grad_weight.addmm_(slope.T, h)
                else:
                    grad_weight += slope.T @ h
        if grad_states is not None and not whole:
            grad_states = torch.zeros_like(states, dtype=dtype).index_copy_(0, kept, grad_states)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        ctx.dtypes = [None if x is None else x.dtype for x in (states, weight, bias)]
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        grad = grads_out[0]
        made = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        grads = [None if g is None else (g * grad).to(dtype) for g, dtype in made]
        return *grads, None, None, None, None, None, None
