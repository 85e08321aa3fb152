"""Broken mixtures of experts."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.core.config import Dims
from txlab.nn.ffn import MoE
from txlab.nn.ffn.router import Routing


class Rerouted(MoE):
    """Whose router says something else."""

    def __init__(self, config: MoE.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        route = self.router.forward
        self.router.forward = lambda x: self.reroute(route(x))  # type: ignore[method-assign]

    def reroute(self, routing: Routing) -> Routing:
        raise NotImplementedError


@caught_by("router_learns", "the router has no gradient")
class DetachesItsWeights(Rerouted):
    """Experts are weighed by numbers without a graph."""

    def reroute(self, routing: Routing) -> Routing:
        return routing._replace(weights=routing.weights.detach())


@caught_by("router_learns", "with top_k=1 the router has no gradient")
class SoftmaxAfterTopOne(Rerouted):
    """The weight of the only expert is always 1."""

    def reroute(self, routing: Routing) -> Routing:
        weights = routing.logits.gather(-1, routing.experts).softmax(-1)
        return routing._replace(weights=weights)


@caught_by("router_learns", "gradient of balance_loss twice")
class IgnoresTheCoefficient(MoE):
    """The balance loss comes with a weight of its own."""

    def aux(self, *args: Any) -> Any:
        aux = super().aux(*args)
        weight = self.config.balance_loss
        losses = {k: v / weight if k == "balance" else v for k, v in aux.losses.items()}
        return dataclasses.replace(aux, losses=losses)


@caught_by("even_router_has_the_known_loss", "balance loss of an even router")
class CountsEachChoice(MoE):
    """The balance loss without the number of experts."""

    def aux(self, *args: Any) -> Any:
        aux = super().aux(*args)
        losses = {name: loss / self.config.n_experts for name, loss in aux.losses.items()}
        return dataclasses.replace(aux, losses=losses)


@caught_by("every_choice_reaches_its_expert", "against each alone")
class DropsInSilence(MoE):
    """A capacity that nobody asked for."""

    def capacity(self, flat: Tensor, real: Tensor | None) -> Any:
        return max(1, len(flat) * self.config.top_k // self.config.n_experts)


@caught_by("padding_is_not_routed", "balance")
@caught_by("loads_count_every_choice", "choices, expected 48")
class CountsPadding(MoE):
    """Losses and loads of twice as many tokens as there are."""

    def aux(self, routing: Routing, real: Any, kept: Any) -> Any:
        doubled = [torch.cat([part, part.flip(0) * 0]) for part in routing]
        return super().aux(Routing(*doubled), None, kept)


@caught_by("shared_experts_are_added", "shared")
class IgnoresTheSharedExpert(MoE):
    """It is there, and nobody calls it."""

    def __init__(self, config: MoE.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        if self.shared is not None:
            self.shared.forward = lambda x, ctx: 0 * x  # type: ignore[method-assign]


@caught_by("position_wise", "another order")
class RoutesByPlace(Rerouted):
    """The place in the row chooses the expert."""

    def reroute(self, routing: Routing) -> Routing:
        place = torch.arange(len(routing.experts))[:, None] + torch.arange(self.config.top_k)
        return routing._replace(experts=place % self.config.n_experts)
