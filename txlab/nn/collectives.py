"""What tensor-parallel ranks exchange, with gradients (Shoeybi et al. 2019, Megatron-LM, 3)."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh


def entered(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """x as it is, where the ranks' work on it parts; its gradient is the sum of theirs."""
    return _Entered.apply(x, mesh)


def summed(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum of the ranks' x, where their work meets; each x has the gradient of the sum."""
    return _Summed.apply(x, mesh)


def joined(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The ranks' x side by side along the last axis; each gets its own share of the gradient."""
    return _Joined.apply(x, mesh)


def total(x: Tensor, mesh: DeviceMesh, kind: str = "sum") -> Tensor:
    """`kind` ("sum", "max") of x over the ranks, without gradient."""
    return functional.wait_tensor(functional.all_reduce(x.contiguous(), kind, mesh))


class _Entered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return total(grads[0], ctx.mesh), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh) -> Tensor:
        return total(x, mesh)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh, ctx.width = mesh, x.shape[-1]
        parts = functional.all_gather_single(x.contiguous(), 0, mesh)
        return torch.cat(functional.wait_tensor(parts).chunk(mesh.size()), -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        start = ctx.mesh.get_local_rank() * ctx.width
        return grads[0].narrow(-1, start, ctx.width), None
