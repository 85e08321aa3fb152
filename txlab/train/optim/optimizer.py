"""The interface of optimizers: how a model's parameters are grouped and who makes the update."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from txlab.core.config import Component
from txlab.core.slot import Slot

Named = list[tuple[str, nn.Parameter]]


class Optim(ABC):
    """Makes one torch Optimizer for all trainable parameters of a model.

    Always one Optimizer object, even where parameters follow different rules; every group carries
    `param_names`, and its `lr` is the peak rate that the schedule's factor multiplies.
    """

    @dataclass
    class Config(Component):
        """Learning rate and decay, shared by every optimizer."""

        lr: float = 1e-3
        """Peak learning rate; the schedule multiplies it."""
        weight_decay: float = 0.1
        """Decoupled weight decay of matrices; vectors and scalars never decay."""

        def __post_init__(self) -> None:
            self.require(self.lr > 0, "lr", "a learning rate above 0")
            self.require(self.weight_decay >= 0, "weight_decay", "0 or more")

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def make(self, model: nn.Module) -> Optimizer:
        """The optimizer over `model`'s trainable parameters."""


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups by shape: matrices (2-D and up) decay, vectors and scalars do not.

    A shape tells what a class name cannot: every bias, gain, scale and logit temperature is 1-D or
    0-D, whatever module holds it; the biases of stacked experts, [e o], are vectors all the same.
    A tied tensor is listed once, under its first name.
    """
    matrices: Named = []
    vectors: Named = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            vector = parameter.ndim < 2 or name.endswith(".bias")
            (vectors if vector else matrices).append((name, parameter))
    groups = [(matrices, weight_decay), (vectors, 0.0)]
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


optim = Slot("optim", Optim, doc="Turns gradients into updates.")
