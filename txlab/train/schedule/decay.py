"""Falls from the peak to a share of it, and the shapes they have."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from txlab.train.schedule.schedule import Schedule

SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda x: 1 - x,
    "sqrt": lambda x: 1 - math.sqrt(x),
    "cosine": lambda x: 0.5 * (1 + math.cos(math.pi * x)),
}
"""What is left of a fall at `x` in [0, 1] of the way."""


class Decay(Schedule):
    """Falls from the peak to `min_ratio` of it."""

    @dataclass
    class Config(Schedule.Config):
        """Fields of schedules that end at a share of the peak."""

        min_ratio: float = 0.1
        """Factor of the very last update."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.min_ratio <= 1, "min_ratio", "a number from 0 to 1")

    fall: Callable[[float], float]
    """One of `SHAPES`."""

    def __init__(self, config: Config, *, total_steps: int) -> None:
        super().__init__(config, total_steps=total_steps)
        self.min_ratio = config.min_ratio

    def after(self, progress: float) -> float:
        return self.min_ratio + (1 - self.min_ratio) * self.fall(progress)
