"""What each parameter of a model is for: its role and its layer, by which rates may differ."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from torch import nn

from txlab.nn.adapter import adapter_of
from txlab.nn.attention import Mixer
from txlab.nn.ffn import FFN
from txlab.nn.ffn.router import Router
from txlab.nn.norm import Norm
from txlab.nn.position import Position

Role = Literal["embed", "position", "head", "norm", "attn", "ffn", "router", "adapter", "other"]


@dataclass
class RoleRates:
    """Factors of the learning rate by what a parameter is for; None: 1, 0: it stays as it is."""

    embed: float | None = None
    """The embedding, also where it is the head too."""
    position: float | None = None
    """Tables of positions."""
    head: float | None = None
    """A head of its own."""
    norm: float | None = None
    """Gains and biases of norms, wherever they stand."""
    attn: float | None = None
    """What else stands in attention."""
    ffn: float | None = None
    """What else stands in feed-forward layers, experts too."""
    router: float | None = None
    """What chooses experts."""
    adapter: float | None = None
    """Tensors of the adapter."""
    other: float | None = None
    """All others: layer scales, and what components of yours declare themselves."""

    def given(self) -> dict[str, float]:
        """The factors that were chosen, by role."""
        both = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {role: factor for role, factor in both if factor is not None}


_OWNERS: list[tuple[type[nn.Module], Role]] = [
    (Norm, "norm"),
    (Router, "router"),
    (nn.Embedding, "embed"),
    (Mixer, "attn"),
    (FFN, "ffn"),
]


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    """The role of every parameter by name; a tied one once, as the embedding."""
    adapter = adapter_of(model)
    adapted = set() if adapter is None else {id(t) for t in adapter.tensors(model).values()}
    found: dict[int, tuple[str, Role]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        role: Role = "adapter" if id(parameter) in adapted else _role(model, name)
        first = found.setdefault(id(parameter), (name, role))
        if role == "embed":
            found[id(parameter)] = (first[0], role)
    return dict(found.values())


def layers_of(names: Sequence[str]) -> dict[str, int | None]:
    """The index of the layer that each named parameter stands in; None: in no layer."""
    found: dict[str, int | None] = {}
    for name in names:
        path = name.split(".")
        at = path.index("layers") + 1 if "layers" in path else len(path)
        found[name] = int(path[at]) if at < len(path) and path[at].isdigit() else None
    return found


def _role(model: nn.Module, name: str) -> Role:
    path = name.split(".")[:-1]
    owners = [model]
    for part in path:
        owners.append(getattr(owners[-1], part))
    if any(isinstance(owner, Position) for owner in owners):
        return "position"
    for owner in reversed(owners):
        for kind, role in _OWNERS:
            if isinstance(owner, kind):
                return role
    return "head" if path == ["head"] else "other"
