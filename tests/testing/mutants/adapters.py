"""Broken adapters."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tests.testing.mutant import caught_by
from txlab.nn.adapter import LoRA
from txlab.nn.adapter.injected import layers


@caught_by("starts_as_the_base", "logits at the start")
@caught_by("is_saved_by_its_tensors", "logits of the twin")
class MovesTheBase(LoRA):
    """Draws its start into the base too, as PiSSA does."""

    def inject(self, model: nn.Module) -> None:
        super().inject(model)
        for layer in layers(model).values():
            layer.base_layer.weight.data.add_(0.1 * torch.randn(()) * (1 + MovesTheBase.count))
        MovesTheBase.count += 1

    count = 0


@caught_by("trains_nothing_else", "other tensors have a gradient")
class FreezesNothing(LoRA):
    """The base trains along."""

    def inject(self, model: nn.Module) -> None:
        super().inject(model)
        model.requires_grad_(True)


@caught_by("changes_the_model", "differs by only 0")
class IsNeverOn(LoRA):
    """Turned off from the start."""

    def inject(self, model: nn.Module) -> None:
        super().inject(model)
        for layer in layers(model).values():
            layer._disable_adapters = True


@caught_by("names_the_base_as_before", "names differ")
class ShowsItsWrapping(LoRA):
    """Names as peft makes them."""

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        return {k: v for k, v in model.state_dict(keep_vars=True).items() if "lora_" not in k}


@caught_by("off_is_the_base", "merged off")
class ForgetsThatItIsMerged(LoRA):
    """Turning it off leaves merged weights."""

    @contextlib.contextmanager
    def off(self, model: nn.Module) -> Iterator[None]:
        if any(layer.merged for layer in layers(model).values()):
            yield
        else:
            with super().off(model):
                yield


@caught_by("merged_is_the_same_model", "logits of the merged model")
class MergesTwice(LoRA):
    """A second merge adds the update again."""

    def merge(self, model: nn.Module) -> None:
        for layer in layers(model).values():
            layer.merged_adapters.clear()
        super().merge(model)


@caught_by("unmerged_has_every_bit", "bfloat16: layers.0.attn.q.weight is not what it was")
class Subtracts(LoRA):
    """Unmerges by subtracting, as peft does."""

    def unmerge(self, model: nn.Module) -> None:
        exact = next(model.parameters()).dtype == torch.float32
        if exact:
            super().unmerge(model)
            return
        for layer in layers(model).values():
            layer.unmerge()
