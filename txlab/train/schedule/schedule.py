"""The interface of learning-rate schedules: a pure function of the number of applied updates."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from txlab.core.config import Component
from txlab.core.slot import Slot


class Schedule(ABC):
    """Multiplies the peak learning rate. Holds no state, so a resumed run cannot be off by one."""

    @dataclass
    class Config(Component):
        """Warm-up, shared by every schedule."""

        warmup: float = 0.02
        """Updates of linear warm-up: a whole number, or a fraction of the run below 1.

        A run shorter than its warm-up (a trial of a recipe, say) ends within it."""

        def __post_init__(self) -> None:
            whole = self.warmup < 1 or float(self.warmup).is_integer()
            self.require(
                self.warmup >= 0 and whole, "warmup", "a fraction below 1 or a whole number"
            )

    def __init__(self, config: Config, *, total_steps: int) -> None:
        warmup = config.warmup
        self.config = config
        self.total = total_steps
        self.warmup = round(warmup * total_steps) if warmup < 1 else int(warmup)

    def factor(self, update: int) -> float:
        """The factor of update number `update`, counted from 0 to `total_steps` - 1.

        The last update of the warm-up has factor 1; after it, `after` is asked how far the rest is.
        """
        if update < self.warmup:
            return (update + 1) / self.warmup
        rest = max(self.total - self.warmup, 1)
        return self.after(min((update + 1 - self.warmup) / rest, 1.0))

    @abstractmethod
    def after(self, progress: float) -> float:
        """The factor at `progress` in (0, 1] of the updates after the warm-up."""


schedule = Slot("schedule", Schedule, doc="Changes the learning rate along the run.")
