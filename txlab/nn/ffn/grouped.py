"""One linear layer for each expert, all of one kind as one tensor: rows are sorted by expert."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula


class GroupedLinear(nn.Module):
    """`y[m o] = linear(x[m i], groups[e])`: rows up to `groups[0]` by expert 0, and so on.

    Rows after the last group come out as 0 (with a bias: as something finite).
    """

    def __init__(self, n_experts: int, n_in: int, n_out: int, *, bias: bool) -> None:
        super().__init__()
        self.n_experts, self.in_features, self.out_features = n_experts, n_in, n_out
        self.weight = nn.Parameter(torch.empty(n_experts, n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_experts, n_out)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch's own linear starts: uniform within 1 / sqrt(in)."""
        reach = 1 / math.sqrt(self.in_features)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -reach, reach)

    def forward(self, x: Float[Tensor, "m i"], groups: Int[Tensor, "e"]) -> Float[Tensor, "m o"]:
        weight, bias, kind = self.weight, self.bias, x.device.type
        if torch.is_autocast_enabled(kind):
            low = torch.get_autocast_dtype(kind)
            x, weight = x.to(low), weight.to(low)
            bias = None if bias is None else bias.to(low)
        y = grouped_linear(x, weight, groups)
        if bias is None:
            return y
        rows = torch.arange(len(x), device=x.device, dtype=groups.dtype)
        owner = torch.searchsorted(groups, rows, right=True).clamp(max=self.n_experts - 1)
        return y + bias[owner]

    def extra_repr(self) -> str:
        return f"{self.n_experts} x {self.in_features} -> {self.out_features}"


@torch.library.custom_op("txlab::grouped_linear", mutates_args=())
def grouped_linear(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    """x[m i] times the transposed weight[e o i] of each row's group; rows after the last: 0."""
    if _kernel_takes(x, weight):
        y = F.grouped_mm(x, weight.transpose(1, 2), offs=groups)
        if x.device.type != "cpu":
            rows = torch.arange(len(y), device=y.device)
            return y.masked_fill_((rows >= groups[-1])[:, None], 0)
        y[int(groups[-1]) :] = 0
        return y
    y = x.new_zeros(len(x), weight.shape[1])
    for expert, (start, stop) in enumerate(_ranges(groups)):
        torch.mm(x[start:stop], weight[expert].T, out=y[start:stop])
    return y


@torch.library.custom_op("txlab::grouped_outer", mutates_args=())
def grouped_outer(grad: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    """The gradient [e o i] of the weights: grad[m o]^T x[m i] over the rows of each group."""
    if _kernel_takes(x, grad):
        return F.grouped_mm(grad.transpose(0, 1), x, offs=groups)
    y = x.new_zeros(len(groups), grad.shape[1], x.shape[1])
    for expert, (start, stop) in enumerate(_ranges(groups)):
        torch.mm(grad[start:stop].T, x[start:stop], out=y[expert])
    return y


def _kernel_takes(x: Tensor, other: Tensor) -> bool:
    """torch's kernel has no float64, and needs rows (or columns) of whole 16 bytes."""
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    steps = [sorted(t.stride()[-2:]) for t in (x, other)]
    return all(step == 1 and not jump * x.itemsize % 16 for step, jump in steps)


def _ranges(groups: Tensor) -> list[tuple[int, int]]:
    stops = groups.tolist()
    return list(zip([0, *stops], stops, strict=False))


@grouped_linear.register_fake
def _(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@grouped_outer.register_fake
def _(grad: Tensor, x: Tensor, groups: Tensor) -> Tensor:
    return x.new_empty(groups.shape[0], grad.shape[1], x.shape[1])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, groups = ctx.saved_tensors
    grad = grad.contiguous()
    for_x, for_weight, _ = ctx.needs_input_grad
    return (
        grouped_linear(grad, weight.transpose(1, 2), groups) if for_x else None,
        grouped_outer(grad, x, groups) if for_weight else None,
        None,
    )


grouped_linear.register_autograd(_backward, setup_context=_save)


@register_flop_formula(torch.ops.txlab.grouped_linear)
def _flops_of_rows(x: Any, weight: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * x[0] * math.prod(weight[1:])


@register_flop_formula(torch.ops.txlab.grouped_outer)
def _flops_of_outer(grad: Any, x: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * x[0] * grad[1] * x[1]
