"""The slot of initialisations: a table from tensor to distribution."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.slot import Slot


@dataclass(frozen=True)
class Normal:
    """A normal distribution around `mean`, cut at `cut` standard deviations where that is given."""

    std: float
    mean: float = 0.0
    cut: float | None = None

    def fill(self, tensor: Tensor) -> None:
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


class Init:
    """Says for each tensor how it starts; `apply` fills a model in place."""

    @dataclass
    class Config(Component):
        """Fields shared by all initialisations."""

    def __init__(self, config: Config, dims: Dims) -> None:
        self.dims = dims

    def distribution(self, name: str, tensor: Tensor, role: str, layer: int) -> Normal | None:
        """How a tensor starts; None keeps what its module made.

        `role`: embed, head, position, in (a linear that reads the residual stream), out (one that
        writes to it), bias, other (norms' weights and whatever a component declares itself).
        `layer`: index of the layer, 0 outside of the stack.
        """
        raise NotImplementedError

    @torch.no_grad()
    def apply(self, model: nn.Module) -> None:
        """Fill every parameter of `model` from the table, in the order of their names."""
        for name, tensor, role, layer in roles(model):
            distribution = self.distribution(name, tensor, role, layer)
            if distribution is not None:
                distribution.fill(tensor)

    def table(self, model: nn.Module) -> list[tuple[str, str]]:
        """(name, distribution) of every parameter, for printing."""
        rows = [(name, self.distribution(name, t, role, layer)) for name, t, role, layer in roles(model)]
        return [(name, "as made" if found is None else str(found)) for name, found in rows]


def roles(model: nn.Module) -> list[tuple[str, Tensor, str, int]]:
    """(name, tensor, role, layer) of every parameter; tied ones once."""
    found = []
    for name, tensor in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        parent_path, _, attribute = path.rpartition(".")
        module, parent = model.get_submodule(path), model.get_submodule(parent_path)
        parts = name.split(".")
        layer = int(parts[parts.index("layers") + 1]) if "layers" in parts else 0
        if leaf == "bias":
            role = "bias"
        elif isinstance(module, nn.Embedding):
            role = "position" if parts[0] == "pos" else "embed"
        elif isinstance(module, nn.Linear):
            outs = getattr(parent, "out_linears", ())
            role = "head" if path == "head" else "out" if attribute in outs else "in"
        else:
            role = "other"
        found.append((name, tensor, role, layer))
    return found


init = Slot("model.init", Init, doc="How each tensor starts.")
