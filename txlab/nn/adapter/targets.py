"""Which linears of a model an adapter is for: roles, names and globs become full names."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from txlab.core.errors import RequestError
from txlab.core.nearest import did_you_mean
from txlab.nn.attention.mixer import Mixer
from txlab.nn.block import Block
from txlab.nn.ffn.ffn import FFN
from txlab.nn.ffn.grouped import GroupedLinear

ROLES: dict[str, tuple[type[nn.Module], ...]] = {
    "attention": (Mixer,),
    "ffn": (FFN,),
    "all": (Block, Mixer, FFN),
}
"""What a linear must stand in to have a role; `all` is every linear inside the layers."""


def pick(model: nn.Module, targets: Sequence[str]) -> list[str]:
    """Full names of the linears that `targets` mean, in the model's order, each once.

    The stacked linears of experts are linears too, one for all experts; routers are none.
    A target is a role, the last word of a name (`q`), or a glob of the whole name
    (`layers.*.attn.q`). RequestError for a target without any linear, with what is near it.
    """
    kinds = (nn.Linear, GroupedLinear)
    linears = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    head = {name for name in linears if model.get_submodule(name) is getattr(model, "head", None)}
    roles = {role: _inside(model, kinds, linears) for role, kinds in ROLES.items()}
    found: set[str] = set()
    for target in targets:
        meant = roles.get(target) or {name for name in linears if _means(target, name)}
        if meant and meant <= head:
            raise RequestError(
                f"adapter.targets: {target} is the output head, which the losses read without an "
                "adapter (and which may be the embedding too): name linears inside the layers."
            )
        if not meant:
            raise RequestError(_unmatched(target, linears))
        found |= meant - head
    if not found:
        raise RequestError(
            "adapter.targets=[] adapts nothing: name a role such as all, or linears."
        )
    return [name for name in linears if name in found]


def _means(target: str, name: str) -> bool:
    return target == name.rpartition(".")[2] or fnmatchcase(name, target)


def _inside(
    model: nn.Module, kinds: tuple[type[nn.Module], ...], linears: Iterable[str]
) -> set[str]:
    owners = tuple(f"{name}." for name, part in model.named_modules() if isinstance(part, kinds))
    return {name for name in linears if name.startswith(owners)}


def _unmatched(target: str, linears: Sequence[str]) -> str:
    leaves = dict.fromkeys(name.rpartition(".")[2] for name in linears)
    known = [*ROLES, *leaves, *(linears if "." in target else ())]
    hint = did_you_mean(target, known)
    return (
        f"adapter.targets: {target} matches no linear of this model.{hint} There are the roles "
        f"{', '.join(ROLES)}, the names {', '.join(leaves)}, and globs of whole names such as "
        f"{linears[0] if linears else 'layers.*.attn.q'}."
    )
