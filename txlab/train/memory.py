"""Memory: bytes that a step keeps, told without making it, and what a process has used."""

import contextlib
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """Tensors made in here have shapes and dtypes, on this CPU, and no memory."""
    with FakeTensorMode():
        yield


def optimizer_bytes(model: nn.Module, make: Callable[[nn.Module], Optimizer]) -> int:
    """State of the optimizer after its first step; `model` is one without numbers."""
    optimizer = make(model)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    state = (value for entry in optimizer.state.values() for value in entry.values())
    return sum(value.nbytes for value in state if isinstance(value, Tensor))


class Saved:
    """Counts what autograd keeps for the backward pass while it is open, weights left out."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {p.untyped_storage()._cdata for p in model.parameters()}
        self._held: dict[int, Any] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def __enter__(self) -> "Saved":
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    @property
    def bytes(self) -> int:
        """Each piece of memory once, however many tensors look at it."""
        return sum(storage.nbytes() for storage in self._held.values())

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._weights:
            self._held[storage._cdata] = storage
        return tensor


def peak_memory(device: torch.device) -> float:
    """Most memory in use so far, in MiB: of the model's GPU, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
