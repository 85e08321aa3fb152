"""Warm-up, stable, decay."""

from dataclasses import dataclass

from txlab.train.schedule.decay import SHAPES, Decay
from txlab.train.schedule.schedule import schedule


@schedule("wsd")
class WSD(Decay):
    """The peak until the last updates, which fall to `min_ratio` of it (Hu et al. 2024).

    The fall by 1 - sqrt over a fifth of the run is that of Haegele et al. 2024.
    """

    @dataclass
    class Config(Decay.Config):
        decay: float = 0.2
        """Updates of the fall: a whole number, or a fraction of the run below 1.

        Where the warm-up leaves fewer, those."""
        shape: str = "sqrt"
        """The fall: linear, sqrt (1 - sqrt of how far it is) or cosine."""
        min_ratio: float = 0.0
        """Factor of the very last update."""

        def __post_init__(self) -> None:
            super().__post_init__()
            whole = self.decay < 1 or float(self.decay).is_integer()
            self.require(self.decay >= 0 and whole, "decay", "a fraction below 1 or a whole number")
            self.require(self.shape in SHAPES, "shape", f"one of {', '.join(SHAPES)}")

    def __init__(self, config: Config, *, total_steps: int) -> None:
        super().__init__(config, total_steps=total_steps)
        decay = round(config.decay * total_steps) if config.decay < 1 else int(config.decay)
        self.decay = min(decay, self.rest)
        self.fall = SHAPES[config.shape]

    def after(self, progress: float) -> float:
        fallen = round(progress * self.rest) - (self.rest - self.decay)
        if fallen <= 0:
            return 1.0
        return super().after(fallen / self.decay)
