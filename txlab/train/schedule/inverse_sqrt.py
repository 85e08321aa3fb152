"""Inverse square root decay, normalised to the peak or as it was published."""

import math
from dataclasses import dataclass

from txlab.train.schedule.schedule import Schedule, schedule


@schedule("inverse_sqrt")
class InverseSqrt(Schedule):
    """Falls with the square root of the update's number (Vaswani et al. 2017).

    By default `optim.lr` is the peak, and update n has sqrt(warmup / n) of it. With `d_model` it is
    the original, in which `optim.lr` is only a scale: d_model^-0.5 min(n^-0.5, n warmup^-1.5).
    """

    @dataclass
    class Config(Schedule.Config):
        d_model: int | None = None
        """Width in the original formula; None: normalised to the peak."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.d_model is None or self.d_model >= 1, "d_model", "at least 1")

    def __init__(self, config: Config, *, total_steps: int) -> None:
        super().__init__(config, total_steps=total_steps)
        warmup = max(self.warmup, 1)
        self.scale = 1.0 if config.d_model is None else (config.d_model * warmup) ** -0.5

    def factor(self, update: int) -> float:
        return self.scale * super().factor(update)

    def after(self, progress: float) -> float:
        update = self.warmup + round(progress * self.rest)
        return math.sqrt(max(self.warmup, 1) / update)
