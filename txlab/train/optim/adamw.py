"""Adam with decoupled weight decay."""

from dataclasses import dataclass

import torch
from torch import nn

from txlab.train.optim.optimizer import Optim, decay_groups, optim


@optim("adamw")
class AdamW(Optim):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); fused where torch has it."""

    @dataclass
    class Config(Optim.Config):
        betas: tuple[float, float] = (0.9, 0.95)
        """Decay of the running mean of gradients and of their squares."""
        eps: float = 1e-8
        """Added to the root of the second moment."""
        fused: bool = True
        """Update all parameters in one kernel; the same result up to rounding."""

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
        self.fused = config.fused

    def make(self, model: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            decay_groups(model, self.config.weight_decay),
            lr=self.config.lr,
            betas=(self.betas[0], self.betas[1]),
            eps=self.eps,
            fused=self.fused or None,
        )
