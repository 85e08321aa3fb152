"""The slot of initialisations: a table from tensor to distribution."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot
from txlab.nn.ffn.grouped import GroupedLinear
from txlab.nn.ffn.router import Router
from txlab.nn.position.position import Position

Role = Literal["embed", "head", "position", "in", "out", "bias", "other"]


@dataclass(frozen=True)
class Normal:
    """A normal distribution around `mean`, cut at `cut` standard deviations where that is given."""

    std: float
    mean: float = 0.0
    cut: float | None = None

    def fill(self, tensor: Tensor) -> None:
        """Draw the tensor's values in place from torch's global generator."""
        if self.std == 0:
            nn.init.constant_(tensor, self.mean)
        elif self.cut is None:
            nn.init.normal_(tensor, self.mean, self.std)
        else:
            reach = self.cut * self.std
            nn.init.trunc_normal_(tensor, self.mean, self.std, self.mean - reach, self.mean + reach)

    def __str__(self) -> str:
        if self.std == 0:
            return f"{self.mean:g}"
        cut = f", cut at {self.cut:g} std" if self.cut is not None else ""
        return f"N({self.mean:g}, {self.std:.4g}){cut}"


@dataclass(frozen=True)
class Uniform:
    """Uniform between -reach and reach; its standard deviation is reach / sqrt(3)."""

    reach: float

    def fill(self, tensor: Tensor) -> None:
        """Draw the tensor's values in place from torch's global generator."""
        nn.init.uniform_(tensor, -self.reach, self.reach)

    def __str__(self) -> str:
        return f"U(-{self.reach:.4g}, {self.reach:.4g})"


class Init:
    """Says for each tensor how it starts; `apply` fills a model in place."""

    @dataclass
    class Config(Component):
        """Fields shared by all initialisations."""

    def __init__(self, config: Config, dims: Dims) -> None:
        self.dims = dims

    @property
    def logit_scale(self) -> float:
        """What the model multiplies its last states by, before the head: 1 but for mup."""
        return 1.0

    def distribution(
        self, name: str, tensor: Tensor, role: Role, layer: int
    ) -> Normal | Uniform | None:
        """How a tensor starts; None keeps what its module made.

        `role`: embed, head (not tied to the embedding), position (of a positional scheme), in (a
        linear that reads the residual stream), out (one that writes to it), bias (of a linear),
        other (norms and whatever a component declares itself).
        `layer`: index of the layer, 0 outside of the stack.
        """
        raise NotImplementedError

    @torch.no_grad()
    def apply(self, model: nn.Module, *, empty: bool = False) -> None:
        """Fill every parameter of `model` from the table, in the order of their names.

        `empty`: the storage is unfilled (built on the meta device, then `to_empty`), so modules
        whose tensors the table leaves alone make them again by `reset_parameters()`; TypeError
        names one that has none.
        """
        rows = [(row, self.distribution(*row)) for row in roles(model)]
        if empty:
            _remake(model, {row[0] for row, found in rows if found is None})
        for (_, tensor, _, _), found in rows:
            if found is not None:
                found.fill(tensor)

    def table(self, model: nn.Module) -> list[tuple[str, str]]:
        """(name, distribution) of every parameter, for printing."""
        rows = [(row[0], self.distribution(*row)) for row in roles(model)]
        return [(name, "as made" if found is None else str(found)) for name, found in rows]


def roles(model: nn.Module) -> list[tuple[str, Tensor, Role, int]]:
    """(name, tensor, role, layer) of every parameter; a tied one once, as the embedding."""
    found: dict[Tensor, tuple[str, Tensor, Role, int]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        role = _role(model, name)
        if tensor not in found or role == "embed":
            found[tensor] = (name, tensor, role, _layer(name))
    return sorted(found.values(), key=lambda row: _natural(row[0]))


def _role(model: nn.Module, name: str) -> Role:
    *path, leaf = name.split(".")
    owners = [model]
    for part in path:
        owners.append(getattr(owners[-1], part))
    module, parent = owners[-1], owners[-2] if path else None
    if any(isinstance(owner, Position) for owner in owners):
        return "position"
    if isinstance(module, nn.Embedding):
        return "embed"
    if not isinstance(module, nn.Linear | GroupedLinear | Router):
        return "other"
    if leaf == "bias":
        return "bias"
    if path[-1] in getattr(parent, "out_linears", ()):
        return "out"
    return "head" if path[-1] == "head" and "layers" not in path else "in"


def _layer(name: str) -> int:
    parts = name.split(".")
    return int(parts[parts.index("layers") + 1]) if "layers" in parts else 0


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def _remake(model: nn.Module, kept: set[str]) -> None:
    """`reset_parameters()` of the modules with parameters in `kept` or with buffers; TypeError
    names what nobody fills."""
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        own = [name for name, _ in module.named_parameters(recurse=False) if prefix + name in kept]
        own += [name for name, _ in module.named_buffers(recurse=False)]
        if not own:
            continue
        reset = getattr(module, "reset_parameters", None)
        left = own
        if callable(reset):
            for name in own:
                _spoil(getattr(module, name))
            reset()
            left = [name for name in own if _spoilt(getattr(module, name))]
        if left:
            way = "that fills them too" if callable(reset) else "method"
            raise TypeError(
                f"{type(module).__name__} at {path or 'the root'} cannot start from empty storage: "
                f"{', '.join(left)} would stay unfilled; give it a reset_parameters() {way}."
            )


def _spoil(tensor: Tensor) -> None:
    """Fill a tensor with what no start has: NaN, or the least whole number."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype != torch.bool:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def _spoilt(tensor: Tensor) -> bool:
    """Whether some of it is still as `_spoil` left it."""
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.isnan().any())
    return tensor.dtype != torch.bool and bool((tensor == torch.iinfo(tensor.dtype).min).any())


init = Slot("model.init", Init, doc="How each tensor starts.")
