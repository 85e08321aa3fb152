"""Parameter groups: who decays, and at what share of the learning rate each parameter trains."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from txlab.core.errors import RequestError
from txlab.nn.adapter import adapter_of
from txlab.nn.init import MuPInit, init, roles
from txlab.train.optim.roles import RoleRates, layers_of, parameter_roles


class Width(NamedTuple):
    """Powers of (width / base width) that rates are multiplied by under `scale=mup`."""

    hidden: float
    """Of matrices whose input and output both grow with the width."""
    rest: float
    """Of embeddings, heads, positions and vectors."""


@dataclass(frozen=True)
class Share:
    """One trainable parameter and how it trains."""

    name: str
    parameter: nn.Parameter
    role: str
    rate: float
    """Factor of the learning rate."""
    decay: float
    """Factor of the weight decay: 0 for vectors."""


def shares(
    model: nn.Module,
    *,
    role_lr: RoleRates,
    layer_decay: float | None,
    width: Width | None,
) -> list[Share]:
    """Every trainable parameter once, matrices before vectors.

    Matrices (2-D and up) decay, vectors and scalars do not. A shape tells what a class name cannot:
    every bias, gain, scale and logit temperature is 1-D or 0-D, whatever module holds it; the
    biases of stacked experts, [e o], are vectors all the same. A tied tensor is listed once, under
    its first name.

    Rates multiply: that of the role, that of the layer, that of the width. Decay is decoupled and
    follows the rate of its group, except that `width` leaves rate times decay as at the base width.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    role_of = parameter_roles(model)
    by_role = _role_factors(role_lr, {role_of[name] for name in trained})
    if trained and not any(by_role.get(role_of[name], 1.0) for name in trained):
        raise RequestError(
            "optim.role_lr: all roles that this model trains have rate 0, so nothing would train; "
            "leave one above 0."
        )
    depth = _depth_factors(model, layer_decay, role_of)
    wide = _width_factors(model, width)
    matrices: list[Share] = []
    vectors: list[Share] = []
    for name, parameter in trained.items():
        role, scaled = role_of[name], wide.get(name, 1.0)
        rate = by_role.get(role, 1.0) * depth.get(name, 1.0) * scaled
        vector = parameter.ndim < 2 or name.endswith(".bias")
        decay = 0.0 if vector else 1 / scaled
        (vectors if vector else matrices).append(Share(name, parameter, role, rate, decay))
    return matrices + vectors


def grouped(found: Iterable[Share], *, lr: float, weight_decay: float) -> list[dict[str, Any]]:
    """torch's parameter groups: those of one rate and one decay together."""
    groups: dict[tuple[float, float, bool], list[tuple[str, nn.Parameter]]] = {}
    for share in found:
        key = (lr * share.rate, weight_decay * share.decay)
        # At a decay of 0 vectors still come after all matrices, so that sums keep their order.
        groups.setdefault((*key, share.decay > 0), []).append((share.name, share.parameter))
    return [
        {"params": params, "lr": rate, "weight_decay": decay}
        for (rate, decay, _), params in groups.items()
    ]


def alike(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Lists that one kernel can take: of one device and dtype each, sharded and plain apart."""
    lists: dict[Any, list[nn.Parameter]] = {}
    for p in parameters:
        kind = (type(p.data), getattr(p, "device_mesh", None), p.device, p.dtype)
        lists.setdefault(kind, []).append(p)
    return list(lists.values())


def _role_factors(role_lr: RoleRates, present: set[str]) -> dict[str, float]:
    given = role_lr.given()
    for role, factor in given.items():
        if role not in present:
            raise RequestError(
                f"optim.role_lr.{role}={factor} is for no trained parameter of this model; it has "
                f"{', '.join(sorted(present))}."
            )
    return given


def _depth_factors(
    model: nn.Module, decay: float | None, role_of: dict[str, Any]
) -> dict[str, float]:
    """decay^(n - 1 - l) in layer l of n, decay^n below the layers, 1 above them."""
    if decay is None:
        return {}
    layer_of = layers_of([name for name, _ in model.named_parameters()])
    n = 1 + max((layer for layer in layer_of.values() if layer is not None), default=-1)
    if n == 0:
        raise RequestError("optim.layer_decay: this model has no layers (parameters layers.N....).")
    found: dict[str, float] = {}
    for name, layer in layer_of.items():
        below = role_of[name] in ("embed", "position")
        above = 0 if layer is None and not below else n
        found[name] = decay ** (above if layer is None else n - 1 - layer)
    return found


def _width_factors(model: nn.Module, width: Width | None) -> dict[str, float]:
    """Maximal update parametrisation (Yang et al. 2022, table 8), its part of the rates."""
    if width is None:
        return {}
    config: Any = getattr(getattr(model, "config", None), "init", None)
    start = init.build(config, model.dims) if config is not None else None
    if not isinstance(start, MuPInit):
        named = getattr(config, "name", "none")
        raise RequestError(
            f"optim.scale=mup with model.init={named}: the start and the logits must be scaled by "
            "the width too; add model.init=mup model.init.base_dim=WIDTH."
        )
    if adapter_of(model) is not None:
        raise RequestError(
            "optim.scale=mup scales whole matrices, not an adapter's; drop it, or the adapter."
        )
    # The matrices whose variance MuPInit divides by the width, routers among them.
    hidden = {id(tensor) for _, tensor, role, _ in roles(model) if role in ("in", "out")}
    return {
        name: start.wider ** (width.hidden if id(p) in hidden else width.rest)
        for name, p in model.named_parameters()
    }
