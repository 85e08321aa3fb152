"""Optimizers: the `optim` slot and its options."""

from txlab.train.optim.adafactor import Adafactor
from txlab.train.optim.adamw import Adam, AdamW
from txlab.train.optim.adamw_8bit import AdamW8bit
from txlab.train.optim.lion import Lion
from txlab.train.optim.muon import Muon
from txlab.train.optim.optimizer import Optim, optim
from txlab.train.optim.roles import RoleRates
from txlab.train.optim.schedule_free import ScheduleFree
from txlab.train.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adafactor",
    "Adam",
    "AdamW",
    "AdamW8bit",
    "Lion",
    "Muon",
    "Optim",
    "RoleRates",
    "ScheduleFree",
    "optim",
]
