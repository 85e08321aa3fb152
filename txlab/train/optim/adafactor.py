"""Adafactor: the second moment of a matrix as one row and one column."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer

from txlab.train.optim.closure import loss_of
from txlab.train.optim.groups import Width
from txlab.train.optim.optimizer import ADAM, Optim, optim


@optim("adafactor")
class Adafactor(Optim):
    """Adam without first moments, second ones factored (Shazeer and Stern 2018, algorithms 4, 5).

    A matrix [o i] keeps o + i numbers. `lr` is the rate itself, which `scale_parameter` multiplies
    by the root mean square of the weights: torch's class caps it by 1 / sqrt(t) instead, so that no
    schedule could hold a peak. Decay is decoupled, as everywhere here.
    """

    @dataclass
    class Config(Optim.Config):
        lr: float = 1e-2
        """Peak learning rate; the schedule multiplies it."""
        scale_parameter: bool = True
        """Rates are relative to the size of the weights, of each matrix by itself."""
        min_rms: float = 1e-3
        """The least size that weights count as having."""
        decay_rate: float = 0.8
        """The second moment forgets by t^-decay_rate at update t."""
        clip_threshold: float = 1.0
        """Root mean square that an update is cut to."""
        eps: float = 1e-30
        """Added to the squares of gradients."""

        def __post_init__(self) -> None:
            super().__post_init__()
            for name in ("min_rms", "clip_threshold", "eps"):
                self.require(getattr(self, name) > 0, name, "a number above 0")
            self.require(0 < self.decay_rate <= 1, "decay_rate", "a number in (0, 1]")

    config: Config

    @property
    def width(self) -> Width | None:
        # Relative to weights that shrink by the root of the width already.
        return Width(hidden=-0.5, rest=0) if self.config.scale_parameter else ADAM

    def make(self, model: nn.Module) -> Optimizer:
        return Factored(self.groups(model), self.config)


class Factored(Optimizer):
    """The update of Adafactor; tensors of more than two axes are stacks of matrices."""

    def __init__(self, params: Any, config: Adafactor.Config) -> None:
        super().__init__(params, {"lr": config.lr, "weight_decay": 0.0})
        self.config = config

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = loss_of(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.numel():
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        config, state = self.config, self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        update = self._normalised(grad, state).mul_(grad)
        update.div_((_rms(update) / config.clip_threshold).clamp_(min=1))
        if config.scale_parameter:
            update.mul_(_rms(parameter).clamp_(min=config.min_rms))
        lr = float(group["lr"])
        parameter.mul_(1 - lr * group["weight_decay"]).sub_(update, alpha=lr)

    def _normalised(self, grad: Tensor, state: dict[str, Any]) -> Tensor:
        """1 / root of the second moment, which is brought up to date."""
        new = state["step"] ** -self.config.decay_rate
        squares = grad.square().add_(self.config.eps)
        if grad.ndim < 2:
            moment = state.setdefault("square", torch.zeros_like(grad)).lerp_(squares, new)
            return moment.rsqrt()
        row, column = (_added_up(squares.mean(axis, keepdim=True)) for axis in (-1, -2))
        row = state.setdefault("row", torch.zeros_like(row)).lerp_(row, new)
        column = state.setdefault("column", torch.zeros_like(column)).lerp_(column, new)
        return (row / row.mean(-2, keepdim=True)).rsqrt() * column.rsqrt()


def _added_up(tensor: Tensor) -> Tensor:
    """A mean of which each rank has a part, whole: as a resumed run gets it."""
    if not isinstance(tensor, DTensor):
        return tensor
    return tensor.redistribute(
        placements=[Replicate() if p.is_partial() else p for p in tensor.placements]
    )


def _rms(tensor: Tensor) -> Tensor:
    """Root mean square of a vector, or of each matrix of a stack."""
    axes = (-2, -1) if tensor.ndim > 1 else None
    return tensor.square().mean(axes, keepdim=tensor.ndim > 1).sqrt()
