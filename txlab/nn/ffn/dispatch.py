"""Tokens sorted by expert, and their outputs brought back and added up."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


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

    def spread(self, x: Float[Tensor, "n d"], dtype: torch.dtype) -> Float[Tensor, "m d"]:
        """The token of each row, as numbers of this kind."""
        return _Spread.apply(x, self.order, self.back, dtype)  # pyright: ignore

    def collect(
        self, y: Float[Tensor, "m d"], weights: Float[Tensor, "n k"]
    ) -> Float[Tensor, "n d"]:
        """The weighted sum of each token's rows."""
        return _Collect.apply(y, weights.to(y.dtype), self.order, self.back)  # pyright: ignore

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


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index]; on a CPU the lookup of embeddings takes a third of the time of indexing."""
    return F.embedding(index, x)


class _Spread(torch.autograd.Function):
    """Rows of tokens; backward gathers as well, where autograd's own would add row by row."""

    @staticmethod
    def forward(x: Tensor, order: Tensor, back: Tensor, dtype: torch.dtype) -> Tensor:
        return _rows(x.to(dtype), order % len(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, back, _ = inputs
        ctx.save_for_backward(back.unflatten(0, (-1, len(x))))
        ctx.dtype = x.dtype

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        total = _rows(grads[0], back[0]).to(ctx.dtype)
        for rows in back[1:]:
            total += _rows(grads[0], rows)
        return total, None, None, None


class _Collect(torch.autograd.Function):
    """The weighted sum of each token's rows, without a copy of all rows in between."""

    @staticmethod
    def forward(y: Tensor, weights: Tensor, order: Tensor, back: Tensor) -> Tensor:
        n, top_k = weights.shape
        total = _rows(y, back[:n]).mul_(weights[:, :1])
        for i in range(1, top_k):
            total.addcmul_(_rows(y, back[i * n : (i + 1) * n]), weights[:, i : i + 1])
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        y, weights, order, back = ctx.saved_tensors
        n, top_k = weights.shape
        rows = _rows(grads[0], order % n)
        # A row's product with its gradient is the gradient of its weight.
        for_weights = torch.linalg.vecdot(rows, y)[back].unflatten(0, (top_k, n)).T
        rows *= weights.T.flatten()[order, None]
        return rows, for_weights, None, None
