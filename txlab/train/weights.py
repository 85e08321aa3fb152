"""A model's tensors by name: tied ones once, loaded strictly."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from txlab.core.errors import RequestError
from txlab.nn.adapter import adapter_of


def named_tensors(
    model: nn.Module, values: Mapping[Tensor, Tensor] | None = None
) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; a tied tensor once, under its first name.

    Where the model has an adapter these are its base's alone, named as without the adapter.
    `values`: what to give in place of some of them (`Averaging.to_save`).
    """
    values = values or {}
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    adapter = adapter_of(model)
    state = model.state_dict(keep_vars=True) if adapter is None else adapter.base(model)
    for name, tensor in state.items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = values.get(tensor, tensor)
    return tensors


def adapter_tensors(
    model: nn.Module, values: Mapping[Tensor, Tensor] | None = None
) -> dict[str, Tensor] | None:
    """The tensors of the model's adapter by name; None where it has none. `values`: as above."""
    adapter = adapter_of(model)
    if adapter is None:
        return None
    given = values or {}
    return {name: given.get(tensor, tensor) for name, tensor in adapter.tensors(model).items()}


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy `tensors` into `model` in place, so ties hold; RequestError lists all that differs."""
    copy_tensors(named_tensors(model), tensors, source)


def load_adapter(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """The same for the model's adapter."""
    copy_tensors(adapter_tensors(model) or {}, tensors, source)


def copy_tensors(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy `tensors` into those of the same names; RequestError lists all that differs."""
    problems = differences(own, tensors)
    if problems:
        raise RequestError(f"{source} does not fit this model: {'; '.join(problems)}.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def differences(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """How `given` is not `own`: renamed, missing, extra and wrongly shaped tensors."""
    missing = [name for name in own if name not in given]
    extra = [name for name in given if name not in own]
    renamed: list[str] = []
    for name in list(missing):
        twins = [other for other in extra if given[other].shape == own[name].shape]
        rivals = [other for other in missing if own[other].shape == own[name].shape]
        if len(twins) == 1 and len(rivals) == 1:
            renamed.append(f"{name} (in the file as {twins[0]})")
            missing.remove(name)
            extra.remove(twins[0])
    shapes = [
        f"{name} {list(given[name].shape)} (the model has {list(own[name].shape)})"
        for name in own
        if name in given and given[name].shape != own[name].shape
    ]
    lists = {"renamed": renamed, "missing": missing, "extra": extra, "wrong shape": shapes}
    return [f"{kind}: {', '.join(names)}" for kind, names in lists.items() if names]
