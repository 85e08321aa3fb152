"""Tensors that are spread over ranks: put together for saving, cut for the ranks that load them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor


def whole(tensor: Tensor, *, keep: bool = True) -> Tensor:
    """A sharded tensor in one piece, on the CPU; others as they are.

    All ranks of its mesh must call it. Where not `keep`, the rank helps and is left with nothing.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    full = tensor.full_tensor().detach()
    return full.cpu() if keep else full.new_empty(0, device="cpu")


def all_whole(tensors: Mapping[str, Any], *, keep: bool = True) -> dict[str, Any]:
    """`whole` of every tensor in a mapping, one after the other, so that one is in transit."""
    return {
        name: whole(value, keep=keep) if isinstance(value, Tensor) else value
        for name, value in tensors.items()
    }


def leads() -> bool:
    """Whether this rank is the one that writes."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def spread(state: Mapping[str, Any], parameter: Tensor) -> dict[str, Any]:
    """An optimizer's whole state of one parameter, spread as that is."""
    return {
        key: like(value, parameter) if isinstance(value, Tensor) else value
        for key, value in state.items()
    }


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """`tensor`, whole on every rank, spread as `model` is; no rank is asked for anything.

    State of another shape than its parameter's (row and column means, say) is spread along the axes
    that both have, as when an update made it.
    """
    if not isinstance(model, DTensor) or isinstance(tensor, DTensor) or tensor.ndim == 0:
        return tensor
    placements = [p if _fits(p, tensor, model) else Replicate() for p in model.placements]
    with torch.no_grad():
        return distribute_tensor(tensor.detach(), model.device_mesh, placements, src_data_rank=None)


def _fits(placement: Any, tensor: Tensor, model: Tensor) -> bool:
    """Whether `tensor` has the axis along which `placement` cuts `model`."""
    axis = getattr(placement, "dim", None)
    alike = tensor.ndim == model.ndim
    return alike and axis is not None and tensor.shape[axis] == model.shape[axis]


def by_mesh(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups of parameters, cut so that each has those of one mesh: kernels take no mix."""
    cut: list[dict[str, Any]] = []
    for group in groups:
        kinds: dict[Any, list[int]] = {}
        for i, parameter in enumerate(group["params"]):
            kinds.setdefault(_mesh_of(parameter), []).append(i)
        for places in kinds.values():
            own = {key: [group[key][i] for i in places] for key in ("params", "param_names")}
            cut.append({**group, **own})
    return cut


def _mesh_of(tensor: Tensor) -> DeviceMesh | None:
    return tensor.device_mesh if isinstance(tensor, DTensor) else None
