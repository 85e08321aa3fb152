"""Schedule-free AdamW: an average of the iterates takes the place of a decaying rate."""
# pyright: reportPrivateImportUsage=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from txlab.train.optim.adamw import Adam
from txlab.train.optim.closure import loss_of
from txlab.train.optim.groups import alike
from txlab.train.optim.optimizer import optim


@optim("schedule_free")
class ScheduleFree(Adam):
    """AdamW whose averaged weights are the model (Defazio et al. 2024, algorithm 1).

    Gradients are taken between the average and the base iterate; validation, samples and
    weights.safetensors use the average. Meant for `schedule=constant` with a warm-up: a schedule
    that decays works, and its late weights count less, by the square of their rate.
    """

    @dataclass
    class Config(Adam.Config):
        lr: float = 2.5e-3
        """Peak learning rate; the schedule multiplies it. 1 to 10 times AdamW's."""
        betas: tuple[float, float] = (0.9, 0.99)
        """Weight of the average where gradients are taken, and decay of the squares."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.betas[0] > 0, "betas", "two numbers in (0, 1)")

    def make(self, model: nn.Module) -> Optimizer:
        defaults = {"lr": self.config.lr, "betas": self.betas, "eps": self.eps}
        return Averaging(self.groups(model), defaults)


class Averaging(Optimizer):
    """Parameters are y, where gradients are taken; state holds z, and x = y + (1 - 1/b1)(z - y).

        g = grad(y) / (sqrt(v_hat) + eps) + decay y
        z <- z - lr g
        x <- (1 - c) x + c z,    c = lr^2 / (sum of all lr^2)
        y <- (1 - b1) z + b1 x

    The weights of the average are those of the paper; the library of its authors puts the largest
    rate so far in place of the rate, which is the same under a constant schedule.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, {**defaults, "weight_decay": 0.0})

    def averaged(self) -> list[tuple[nn.Parameter, Tensor]]:
        """(parameter, x) of all that were updated; nothing is changed."""
        found: list[tuple[nn.Parameter, Tensor]] = []
        for group in self.param_groups:
            for y in group["params"]:
                if "z" in self.state[y]:
                    x = y.detach().lerp(self.state[y]["z"], 1 - 1 / group["betas"][0])
                    found.append((y, x))
        return found

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = loss_of(closure)
        for group in self.param_groups:
            # Numbers, which stay exact where tensors are cast to the type of their parameter.
            counts: dict[tuple[int, float], list[nn.Parameter]] = {}
            for y in group["params"]:
                if y.grad is None:
                    continue
                state = self.state[y]
                if not state:
                    state |= {"z": y.clone(), "square": torch.zeros_like(y)}
                    state |= {"step": 0, "weight": 0.0}
                state["step"] += 1
                state["weight"] += float(group["lr"]) ** 2
                counts.setdefault((state["step"], state["weight"]), []).append(y)
            for (step, weight), params in counts.items():
                for some in alike(params):
                    self._update(some, group, step, weight)
        return loss

    def _update(self, y: Any, group: dict[str, Any], step: int, weight: float) -> None:
        lr, (first, second) = float(group["lr"]), group["betas"]
        share = lr**2 / weight if weight else 0.0
        grads: Any = [p.grad for p in y]
        z = [self.state[p]["z"] for p in y]
        squares = [self.state[p]["square"] for p in y]
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - second)
        roots = torch._foreach_div(squares, 1 - second**step)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        moves = torch._foreach_div(grads, roots)
        torch._foreach_add_(moves, y, alpha=group["weight_decay"])
        # y without x: (1 - c) y + c z, then what the step of z gives to y.
        torch._foreach_lerp_(y, z, share)
        torch._foreach_add_(y, moves, alpha=lr * (first * (1 - share) - 1))
        torch._foreach_add_(z, moves, alpha=-lr)
