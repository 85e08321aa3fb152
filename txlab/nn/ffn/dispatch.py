"""Tokens sorted by expert, and their outputs brought back and added up."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Dispatch(NamedTuple):
    """A way of n k choices into rows that stand expert by expert.

    Row i takes choice `order[i]`; choice c is choice c // n of token c % n. What goes nowhere
    (padding, and choices beyond an expert's capacity) stands after the last group.
    """

    order: Int[Tensor, "m"]
    back: Int[Tensor, "m"]
    """Row of each choice."""
    groups: Int[Tensor, "e"]
    """Row after each expert's last."""
    top_k: int

    def spread(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "m d"]:
        """The token of each row."""
        return _Spread.apply(x, self.order, self.back, self.top_k)  # pyright: ignore

    def collect(
        self, y: Float[Tensor, "m d"], weights: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n d"]:
        """The weighted sum of each token's rows."""
        parts = _Reorder.apply(y, self.back, self.order).unflatten(0, (self.top_k, -1))  # pyright: ignore
        return (parts * weights.to(y.dtype).T[..., None]).sum(0)

    def kept(self) -> Bool[Tensor, "n k"]:
        """Which choices reached their expert."""
        return (self.back < self.groups[-1]).unflatten(0, (self.top_k, -1)).T


def dispatch(
    experts: Int[Tensor, "n k"],
    n_experts: int,
    real: Bool[Tensor, "n"] | None = None,
    capacity: Tensor | int | None = None,
) -> Dispatch:
    """Sort the choices of n tokens by expert.

    `real`: False at padding, which goes nowhere. `capacity`: choices that an expert takes; first
    choices before second ones, then in the order of tokens (Lepikhin et al. 2020, GShard).
    """
    top_k = experts.shape[1]
    wanted = experts.T.flatten()
    if real is not None:
        wanted = wanted.where(real.repeat(top_k), n_experts)
    order = wanted.argsort(stable=True)
    counts = _counts(wanted, n_experts)
    index = torch.arange(len(wanted), device=wanted.device)
    if capacity is not None:
        owner = wanted[order]
        first = counts.cumsum(0) - counts
        fits = (owner < n_experts) & (index - first[owner] < capacity)
        order = order[(~fits).long().argsort(stable=True)]
        counts = counts.clamp(max=capacity)
    back = torch.empty_like(order).scatter(0, order, index)
    groups = counts[:n_experts].cumsum(0).to(torch.int32)
    return Dispatch(order, back, groups, top_k)


def _counts(wanted: Int[Tensor, "m"], n_experts: int) -> Int[Tensor, "f"]:
    """Choices of each expert, and last those that go nowhere."""
    return wanted.new_zeros(n_experts + 1).scatter_add(0, wanted, torch.ones_like(wanted))


class _Spread(torch.autograd.Function):
    """x[order % n]; backward gathers too, where autograd's own would add up row by row."""

    @staticmethod
    def forward(x: Tensor, order: Tensor, back: Tensor, top_k: int) -> Tensor:
        return x[order % len(x)]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, _, back, ctx.top_k = inputs
        ctx.save_for_backward(back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        return grads[0][back].unflatten(0, (ctx.top_k, -1)).sum(0), None, None, None


class _Reorder(torch.autograd.Function):
    """x[order] for an order that names each row once; `back` is the inverse."""

    @staticmethod
    def forward(x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        return x[order]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grads[0][back], None, None
