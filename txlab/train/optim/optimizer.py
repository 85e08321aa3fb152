"""The interface of optimizers: what they share, and who makes the update."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from txlab.core.config import Component
from txlab.core.errors import RequestError
from txlab.core.slot import Slot
from txlab.train.optim.groups import Share, Width, grouped, shares
from txlab.train.optim.roles import RoleRates


class Optim(ABC):
    """Makes one torch Optimizer for all trainable parameters of a model.

    Always one Optimizer object, even where parameters follow different rules; every group carries
    `param_names`, and its `lr` is the peak rate that the schedule's factor multiplies. What a
    resumed run needs stands in the state of each parameter, as tensors and numbers. An optimizer
    may have a method `averaged()`: (parameter, value) pairs that the model is evaluated with.
    """

    @dataclass
    class Config(Component):
        """Rates and decay, shared by every optimizer."""

        lr: float = 1e-3
        """Peak learning rate; the schedule multiplies it."""
        weight_decay: float = 0.1
        """Decoupled weight decay of matrices; vectors and scalars never decay."""
        role_lr: RoleRates = field(default_factory=RoleRates)
        """Factors of the rate by role: `{embed: 0.5, norm: 2}`; 0 leaves parameters as they are."""
        layer_decay: float | None = None
        """Factor of the rate from each layer to the one below it (ELECTRA, BEiT); None: 1."""
        scale: str | None = None
        """mup: rates follow the width (Yang et al. 2022), beside `model.init=mup`."""

        def __post_init__(self) -> None:
            self.require(self.lr > 0, "lr", "a learning rate above 0")
            self.require(self.weight_decay >= 0, "weight_decay", "0 or more")
            for role, factor in self.role_lr.given().items():
                if not 0 <= factor < float("inf"):
                    raise RequestError(
                        f"optim.role_lr.{role}={factor} of option {self.name!r}: expected a "
                        "finite number, 0 or more."
                    )
            decay = self.layer_decay
            self.require(decay is None or 0 < decay <= 1, "layer_decay", "a number in (0, 1]")
            self.scale = None if self.scale == "none" else self.scale
            self.require(self.scale in (None, "mup"), "scale", "mup or none")

    def __init__(self, config: Config) -> None:
        self.config = config
        if config.scale is not None and self.width is None:
            raise RequestError(f"optim={config.name} has no rule for optim.scale=mup: drop one.")

    @property
    def width(self) -> Width | None:
        """How rates follow the width under `scale=mup`; None: nobody knows."""
        return None

    @abstractmethod
    def make(self, model: nn.Module) -> Optimizer:
        """The optimizer over `model`'s trainable parameters."""

    def shares(self, model: nn.Module) -> list[Share]:
        """Every trainable parameter once, with its factors of rate and decay."""
        config = self.config
        return shares(
            model,
            role_lr=config.role_lr,
            layer_decay=config.layer_decay,
            width=None if config.scale is None else self.width,
        )

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups of one rate and one decay each."""
        config = self.config
        return grouped(self.shares(model), lr=config.lr, weight_decay=config.weight_decay)


ADAM = Width(hidden=-1, rest=0)
"""Where every number of an update has about the size of the rate."""

optim = Slot("optim", Optim, doc="Turns gradients into updates.")
