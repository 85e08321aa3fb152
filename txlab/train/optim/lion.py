"""Lion: the sign of a mixture of momentum and gradient."""
# pyright: reportPrivateImportUsage=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from txlab.train.optim.closure import loss_of
from txlab.train.optim.groups import Width, alike
from txlab.train.optim.optimizer import ADAM, Optim, optim


@optim("lion")
class Lion(Optim):
    """The sign of momentum and gradient, one moment in memory (Chen et al. 2023, program 1).

    Every number moves by the rate, whatever its gradient, so the rate is 3 to 10 times smaller than
    AdamW's and the decay as many times larger.
    """

    @dataclass
    class Config(Optim.Config):
        lr: float = 1e-4
        """Peak learning rate; the schedule multiplies it."""
        weight_decay: float = 1.0
        """Decoupled weight decay of matrices; vectors and scalars never decay."""
        betas: tuple[float, float] = (0.9, 0.99)
        """Share of the momentum in the update, and in the next momentum."""

        def __post_init__(self) -> None:
            super().__post_init__()
            first, second = self.betas
            self.betas = (first, second)
            self.require(
                all(0 <= beta < 1 for beta in self.betas), "betas", "two numbers in [0, 1)"
            )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.betas = config.betas

    @property
    def width(self) -> Width | None:
        return ADAM

    def make(self, model: nn.Module) -> Optimizer:
        return SignMomentum(self.groups(model), lr=self.config.lr, betas=self.betas)


class SignMomentum(Optimizer):
    """The update of Lion, on all parameters of a group at once."""

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = loss_of(closure)
        for group in self.param_groups:
            for params in alike(p for p in group["params"] if p.grad is not None):
                self._update(params, group)
        return loss

    def _update(self, params: Any, group: dict[str, Any]) -> None:
        grads: Any = [p.grad for p in params]
        for p in params:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum"] for p in params]
        lr, (first, second) = float(group["lr"]), group["betas"]
        moves = torch._foreach_lerp(momenta, grads, 1 - first)
        torch._foreach_sign_(moves)
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_add_(params, moves, alpha=-lr)
        torch._foreach_lerp_(momenta, grads, 1 - second)
