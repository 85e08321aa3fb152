"""Adam with decoupled weight decay."""

from dataclasses import dataclass

import torch
from torch import nn

from txlab.train.optim.groups import Width
from txlab.train.optim.optimizer import ADAM, Optim, optim


class Adam(Optim):
    """What optimizers with Adam's moments share."""

    @dataclass
    class Config(Optim.Config):
        """Moments."""

        betas: tuple[float, float] = (0.9, 0.95)
        """Decay of the running mean of gradients and of their squares."""
        eps: float = 1e-8
        """Added to the root of the second moment."""

        def __post_init__(self) -> None:
            super().__post_init__()
            first, second = self.betas  # OmegaConf turns a tuple into a list
            self.betas = (first, second)
            self.require(
                all(0 <= beta < 1 for beta in self.betas), "betas", "two numbers in [0, 1)"
            )
            self.require(self.eps > 0, "eps", "a number above 0")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.betas, self.eps = config.betas, config.eps

    @property
    def width(self) -> Width | None:
        return ADAM


@optim("adamw")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); fused where torch has it."""

    @dataclass
    class Config(Adam.Config):
        fused: bool = True
        """Update all parameters in one kernel; the same result up to rounding."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.fused = config.fused

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self.groups(model),
            lr=self.config.lr,
            betas=self.betas,
            eps=self.eps,
            fused=self.fused or None,
        )
