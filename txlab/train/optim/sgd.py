"""Stochastic gradient descent with momentum."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from txlab.train.optim.closure import loss_of
from txlab.train.optim.groups import Width
from txlab.train.optim.optimizer import Optim, optim


class DecoupledSGD(torch.optim.SGD):
    """torch's SGD, but decay shrinks the weights and stays out of the momentum."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = loss_of(closure)
        decays = [group["weight_decay"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.mul_(1 - float(group["lr"]) * group["weight_decay"])
                group["weight_decay"] = 0.0
            super().step()
        finally:
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay
        return loss


@optim("sgd")
class SGD(Optim):
    """Gradient descent with momentum, plain or Nesterov's (Sutskever et al. 2013)."""

    @dataclass
    class Config(Optim.Config):
        momentum: float = 0.9
        """Share of the last update that the next keeps; 0: none."""
        nesterov: bool = False
        """Look ahead along the momentum."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.momentum < 1, "momentum", "a number in [0, 1)")
            self.require(
                self.momentum > 0 or not self.nesterov, "nesterov", "false where momentum is 0"
            )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.momentum, self.nesterov = config.momentum, config.nesterov

    @property
    def width(self) -> Width | None:
        return Width(hidden=0, rest=1)

    def make(self, model: nn.Module) -> torch.optim.SGD:
        return DecoupledSGD(
            self.groups(model),
            lr=self.config.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
        )
