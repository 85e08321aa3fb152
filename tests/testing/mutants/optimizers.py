"""Broken optimizers."""

from typing import Any

import torch
from torch import nn

from tests.testing.mutant import caught_by
from txlab.train.optim import AdamW, Lion
from txlab.train.optim.lion import SignMomentum


@caught_by("descends", "loss goes from")
class Ascends(AdamW):
    """Goes up."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        optimizer = super().make(model)
        for group in optimizer.param_groups:
            group["maximize"] = True
        return optimizer


@caught_by("moves_every_parameter", "layers.0.attn.o.weight: moved is False")
@caught_by("groups_each_parameter_once", "in no group: layers.0.attn.o.weight")
class ForgetsOne(AdamW):
    """Leaves one tensor out."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        left_out = model.get_parameter("layers.0.attn.o.weight")
        optimizer = super().make(model)
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if p is not left_out]
        return optimizer


@caught_by("decays_matrices_only", "vector layers.0.residual.norms.attn.weight changed")
@caught_by("follows_rates_by_role", "norms.attn.weight: moved is True")
class DecaysEverything(AdamW):
    """Norms and biases decay as well."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)


class Noisy(torch.optim.AdamW):
    """Adds a little noise, and saves nothing."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(1e-6 * torch.randn_like(parameter))

    def load_state_dict(self, state_dict: Any) -> None:
        return None


@caught_by("goes_on_from_saved_state", "differs after the break")
@caught_by("is_saved_by_name", "a group has no param_names")
@caught_by("rests_without_decay_or_gradient", "moved")
@caught_by("repeats_itself", "losses")
class RollsDice(AdamW):
    """Noise in every update."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        return Noisy(model.parameters(), lr=1e-3, weight_decay=0.0)


class Counting(torch.optim.AdamW):
    """Halves its rate at every second update, by a count that no state holds."""

    count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        for group in self.param_groups:
            group["lr"] = 1e-3 / (1 + self.count % 2)
        return super().step(closure)


@caught_by("is_saved_by_name", "differs after the file")
@caught_by("goes_on_from_saved_state", "differs after the break")
class KeepsACount(AdamW):
    """Something that decides updates is not in the state of parameters."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        return Counting(self.groups(model))


@caught_by("decays_matrices_only", "vector layers.0.ffn.experts.gate.bias changed otherwise")
class DecaysBiasesOfExperts(AdamW):
    """Takes all with two axes for matrices."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        optimizer = super().make(model)
        matrices, vectors = optimizer.param_groups
        stacked = [p for p in vectors["params"] if p.ndim > 1]
        vectors["params"] = [p for p in vectors["params"] if p.ndim < 2]
        matrices["params"] = [*matrices["params"], *stacked]
        return optimizer


class Whole(SignMomentum):
    """Divides by the size of each tensor."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                assert parameter.grad is not None
                assert parameter.grad.norm() > 0, "a gradient without a size"
        return super().step(closure)


@caught_by("takes_odd_shapes", "a gradient without a size")
class NeedsNumbers(Lion):
    """Cannot have a tensor without numbers."""

    def make(self, model: nn.Module) -> torch.optim.Optimizer:
        return Whole(self.groups(model), lr=1e-4, betas=(0.9, 0.99))


class Halved(torch.optim.AdamW):
    """Works in float16, whose squares of small gradients are 0."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.dtype is torch.bfloat16:
                        grad = parameter.grad
                        parameter.sub_(group["lr"] * grad / grad.square().half().sqrt().to(grad))
        return None


@caught_by("trains_bfloat16", "are not finite")
class DividesByZero(AdamW):
    """Loses small numbers of bfloat16."""

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        return Halved(self.groups(model))
