"""Adapters that peft puts into the linears of any model."""

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from txlab.core.errors import RequestError
from txlab.nn.adapter.adapter import Adapter
from txlab.nn.adapter.targets import pick
from txlab.nn.ffn.grouped import GroupedLinear

# peft imports bitsandbytes where it is installed, which complains about kernels nobody asked for.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

NAME = "default"
"""What peft calls the one adapter of a model, in the names of its tensors."""
NOTHING = "(?!)"
"""An expression that no name matches."""
KEPT = "_kept_base"
"""Attribute of a merged layer: the tensors of its base as they were."""


class Injected(Adapter):
    """Wraps the linears that `targets` mean; options say with what peft config."""

    @dataclass
    class Config(Adapter.Config):
        """Fields shared by all adapters of linears."""

        targets: list[str] = field(default_factory=lambda: ["all"])
        """Roles (attention, ffn, all), names (q, v) or globs (layers.*.attn.q) of linears."""

        def __post_init__(self) -> None:
            self.require(len(self.targets) > 0, "targets", "at least one role, name or glob")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.targets = config.targets

    def peft_config(self, target_modules: str) -> Any:
        """The config of peft for the linears that the regular expression matches."""
        raise NotImplementedError

    def inject(self, model: nn.Module) -> None:
        names = pick(model, self.targets)
        from peft import inject_adapter_in_model

        stacked = [n for n in names if isinstance(model.get_submodule(n), GroupedLinear)]
        # As an expression: peft takes a listed name for the end of a longer one as well.
        wanted = "|".join(re.escape(name) for name in names if name not in stacked)
        config = self.peft_config(f"(?:{wanted})" if wanted else NOTHING)
        if stacked:
            self.stack(config, stacked)
        inject_adapter_in_model(config, model, NAME)
        adapted = list(layers(model))
        if adapted != names:
            missing = sorted(set(names) ^ set(adapted))
            raise RequestError(f"adapter={self.config.name} cannot adapt {', '.join(missing)}.")
        model.train(model.training)  # new parts are in training mode, whatever the model is in
        setattr(model, "adapter", self)  # noqa: B010

    def stack(self, config: Any, names: Sequence[str]) -> None:
        """Have `config` adapt these stacked linears of experts too; RequestError if it cannot."""
        raise RequestError(
            f"adapter={self.config.name} cannot adapt the experts in {names[0]}: they are one "
            "tensor; name other targets (attention, shared) or take adapter=lora."
        )

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        return _split(model)[1]

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        return _split(model)[0]

    @contextlib.contextmanager
    def off(self, model: nn.Module) -> Iterator[None]:
        found = list(layers(model).values())
        merged = any(layer.merged for layer in found)
        if merged:
            self.unmerge(model)
        # peft's own switch also turns off and on what trains, for each parameter.
        before = [layer._disable_adapters for layer in found]
        for layer in found:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer, state in zip(found, before, strict=True):
                layer._disable_adapters = state
            if merged:
                self.merge(model)

    def merge(self, model: nn.Module) -> None:
        with torch.no_grad():
            for name, layer in layers(model).items():
                if layer.merged:
                    continue
                # peft subtracts again to unmerge, which loses bits; the copy costs memory instead.
                kept = [p.detach().clone() for p in layer.base_layer.parameters()]
                try:
                    layer.merge(safe_merge=True)
                except ValueError as error:
                    raise RequestError(
                        f"the adapter of {name} cannot be merged: {error}"
                    ) from error
                setattr(layer, KEPT, kept)

    def unmerge(self, model: nn.Module) -> None:
        with torch.no_grad():
            for layer in layers(model).values():
                if not layer.merged:
                    continue
                for parameter, kept in zip(
                    layer.base_layer.parameters(), getattr(layer, KEPT), strict=True
                ):
                    parameter.copy_(kept)
                layer.merged_adapters.clear()
                delattr(layer, KEPT)

    def bake(self, model: nn.Module) -> None:
        self.merge(model)
        for name, layer in layers(model).items():
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, layer.base_layer)
        for left in ("peft_config", "adapter"):
            if hasattr(model, left):
                delattr(model, left)
        model.requires_grad_(True)

    def describe(self, model: nn.Module) -> str:
        leaves = Counter(name.rpartition(".")[2] for name in layers(model))
        said = ", ".join(f"{leaf} {count}" for leaf, count in leaves.items())
        trains = sum(p.numel() for p in model.parameters() if p.requires_grad)
        total = sum(p.numel() for p in model.parameters())
        return (
            f"{self.config.name} on {sum(leaves.values())} linears ({said}), {trains:,} of "
            f"{total:,} parameters train ({trains / total:.2%})"
        )


def layers(model: nn.Module) -> dict[str, Any]:
    """The layers that peft put into `model`, by the name of the linear they replace."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, BaseTunerLayer)}


def _split(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The model's tensors under plain names, and the adapter's."""
    owners = set(layers(model))
    base: dict[str, Tensor] = {}
    own: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        owner = next((p for p in _prefixes(name) if p in owners), None)
        if owner is None:
            base[name] = tensor
        elif name.startswith(f"{owner}.base_layer."):
            base[name.replace(".base_layer.", ".", 1)] = tensor
        else:
            own[name.replace(f".{NAME}.", ".").removesuffix(f".{NAME}")] = tensor
    return base, own


def _prefixes(name: str) -> Sequence[str]:
    words = name.split(".")
    return [".".join(words[:n]) for n in range(1, len(words))]
