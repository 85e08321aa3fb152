"""Linear decay."""

from txlab.train.schedule.decay import SHAPES, Decay
from txlab.train.schedule.schedule import schedule


@schedule("linear")
class Linear(Decay):
    """A straight line from the peak to `min_ratio` of it."""

    fall = staticmethod(SHAPES["linear"])
