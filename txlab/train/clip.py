"""One norm over the whole gradient, and clipping by it, once per optimizer step."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """L2 norm of all gradients together, a float32 scalar; 0 where there is none."""
    return norm_of(p.grad for p in parameters if p.grad is not None)


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """L2 norm of all tensors together, a float32 scalar; 0 where there is none.

    Sharded ones are grouped by mesh: torch's own function refuses a mix of meshes, or of sharded
    and plain tensors.
    """
    groups: dict[object, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        groups[tensor.device_mesh if isinstance(tensor, DTensor) else tensor.device].append(tensor)
    norms = [nn.utils.get_total_norm(found) for found in groups.values()]
    norms = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    if len(norms) == 1:
        return norms[0].float()
    if not norms:
        return torch.zeros(())
    return torch.linalg.vector_norm(
        torch.stack([norm.float().to(norms[0].device) for norm in norms])
    )


def scale_gradients(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply every gradient by `factor`, in place."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for grad in grads:
        if isinstance(grad, DTensor):
            grad.mul_(factor)
    plain = [grad for grad in grads if not isinstance(grad, DTensor)]
    if plain:
        torch._foreach_mul_(plain, factor)  # pyright: ignore[reportPrivateImportUsage]
