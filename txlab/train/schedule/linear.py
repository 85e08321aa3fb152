"""Linear decay."""

from dataclasses import dataclass

from txlab.train.schedule.schedule import Schedule, schedule


@schedule("linear")
class Linear(Schedule):
    """A straight line from the peak to `min_ratio` of it."""

    @dataclass
    class Config(Schedule.Config):
        min_ratio: float = 0.1
        """Factor of the very last update."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.min_ratio <= 1, "min_ratio", "a number from 0 to 1")

    def __init__(self, config: Config, *, total_steps: int) -> None:
        super().__init__(config, total_steps=total_steps)
        self.min_ratio = config.min_ratio

    def after(self, progress: float) -> float:
        return self.min_ratio + (1 - self.min_ratio) * (1 - progress)
