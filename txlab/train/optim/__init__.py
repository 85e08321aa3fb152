"""Optimizers: the `optim` slot and its options."""

from txlab.train.optim.adamw import AdamW
from txlab.train.optim.optimizer import Optim, decay_groups, optim
from txlab.train.optim.sgd import SGD

__all__ = ["SGD", "AdamW", "Optim", "decay_groups", "optim"]
