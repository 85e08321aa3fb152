"""Trackers: loggers that hold a run's history, each step once, whatever stopped the run before.

The classes that `logger=wandb` and `logger=tensorboard` name stand in modules of their own, so that
their packages are imported only where they are asked for.
"""

from txlab.train.tracking.tracker import Tracker

__all__ = ["Tracker"]
