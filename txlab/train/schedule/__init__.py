"""Learning-rate schedules: the `schedule` slot and its options."""

from txlab.train.schedule.constant import Constant
from txlab.train.schedule.cosine import Cosine
from txlab.train.schedule.inverse_sqrt import InverseSqrt
from txlab.train.schedule.linear import Linear
from txlab.train.schedule.one_cycle import OneCycle
from txlab.train.schedule.schedule import Schedule, schedule
from txlab.train.schedule.wsd import WSD

__all__ = [
    "WSD",
    "Constant",
    "Cosine",
    "InverseSqrt",
    "Linear",
    "OneCycle",
    "Schedule",
    "schedule",
]
