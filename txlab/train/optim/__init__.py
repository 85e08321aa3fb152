"""Optimizers: the `optim` slot and its options."""

from txlab.train.optim.adamw import AdamW
from txlab.train.optim.optimizer import Optim, decay_groups, optim

__all__ = ["AdamW", "Optim", "decay_groups", "optim"]
