"""The interface of learning-rate schedules: a pure function of the number of applied updates."""

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from txlab.core.config import Component
from txlab.core.errors import RequestError
from txlab.core.slot import Slot


class Schedule(ABC):
    """Multiplies the peak learning rate. Holds no state, so a resumed run cannot be off by one."""

    @dataclass
    class Config(Component):
        """Warm-up, shared by every schedule."""

        warmup: float | None = 0.02
        """Updates of linear warm-up: a whole number, or a fraction of the run below 1.

        None: see `warmup_tokens`. A run shorter than its warm-up (a trial of a recipe, say) ends
        within it."""
        warmup_tokens: int | None = None
        """Tokens of linear warm-up, rounded up to whole updates; needs `warmup=null`."""

        def __post_init__(self) -> None:
            if self.warmup is not None:
                whole = self.warmup < 1 or float(self.warmup).is_integer()
                self.require(
                    self.warmup >= 0 and whole, "warmup", "a fraction below 1 or a whole number"
                )
            if self.warmup_tokens is None:
                self.require(self.warmup is not None, "warmup", "a number, or warmup_tokens")
            else:
                self.require(self.warmup_tokens >= 1, "warmup_tokens", "at least 1")
                alone = self.warmup is None
                self.require(alone, "warmup_tokens", "no warmup beside it (schedule.warmup=null)")

        def in_updates(self, step_tokens: float) -> Self:
            """The same with `warmup_tokens` turned into updates of `step_tokens` tokens each."""
            if self.warmup_tokens is None:
                return self
            updates = math.ceil(self.warmup_tokens / step_tokens)
            return dataclasses.replace(self, warmup=float(updates), warmup_tokens=None)

    def __init__(self, config: Config, *, total_steps: int) -> None:
        warmup = config.warmup
        if warmup is None:
            raise RequestError(
                "schedule.warmup_tokens needs the tokens of a step: call config.in_updates first."
            )
        self.config = config
        self.total = total_steps
        self.warmup = round(warmup * total_steps) if warmup < 1 else int(warmup)
        self.rest = max(total_steps - self.warmup, 1)

    def factor(self, update: int) -> float:
        """The factor of update number `update`, counted from 0 to `total_steps` - 1.

        The last update of the warm-up has factor 1; after it, `after` is asked how far the rest is.
        """
        if update < self.warmup:
            return (update + 1) / self.warmup
        return self.after(min((update + 1 - self.warmup) / self.rest, 1.0))

    @abstractmethod
    def after(self, progress: float) -> float:
        """The factor at `progress` in (0, 1] of the updates after the warm-up."""


schedule = Slot("schedule", Schedule, doc="Changes the learning rate along the run.")
