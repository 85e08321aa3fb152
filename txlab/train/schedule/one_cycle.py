"""One cycle: up, down again, and far below."""

from dataclasses import dataclass

from txlab.train.schedule.decay import SHAPES
from txlab.train.schedule.schedule import Schedule, schedule


@schedule("one_cycle")
class OneCycle(Schedule):
    """Rises in a line, falls back in as many updates, then far below (Smith and Topin 2018).

    The warm-up is the rise, 0.45 of the run by default. With `three_phase=false`, or where no
    update is left after the fall, it falls to `end` at once.
    """

    @dataclass
    class Config(Schedule.Config):
        warmup: float | None = 0.45
        """Updates of the rise: a whole number, or a fraction of the run below 1."""
        start: float | None = None
        """Factor of the first update; None: 1/warmup, as in other schedules."""
        end: float = 4e-6
        """Factor of the very last update."""
        shape: str = "linear"
        """Of what comes after the peak: linear or cosine."""
        three_phase: bool = True
        """Fall back to the start first."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(
                self.start is None or 0 <= self.start <= 1, "start", "a number from 0 to 1"
            )
            self.require(0 <= self.end <= 1, "end", "a number from 0 to 1")
            self.require(self.shape in ("linear", "cosine"), "shape", "linear or cosine")

    def __init__(self, config: Config, *, total_steps: int) -> None:
        super().__init__(config, total_steps=total_steps)
        self.start = 1 / max(self.warmup, 1) if config.start is None else config.start
        self.end = config.end
        self.fall = SHAPES[config.shape]
        back = self.warmup - 1
        self.back = back if config.three_phase and 0 < back < self.rest else 0

    def factor(self, update: int) -> float:
        if update >= self.warmup - 1:
            return super().factor(update)
        return self.start + (1 - self.start) * update / (self.warmup - 1)

    def after(self, progress: float) -> float:
        update = round(progress * self.rest)
        if update <= self.back:
            return self._between(1.0, self.start, update / self.back)
        top = self.start if self.back else 1.0
        return self._between(top, self.end, (update - self.back) / (self.rest - self.back))

    def _between(self, high: float, low: float, way: float) -> float:
        return low + (high - low) * self.fall(way)
