"""Learning-rate schedules: the `schedule` slot and its options."""

from txlab.train.schedule.cosine import Cosine
from txlab.train.schedule.schedule import Schedule, schedule

__all__ = ["Cosine", "Schedule", "schedule"]
