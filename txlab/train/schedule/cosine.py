"""Cosine decay."""

from txlab.train.schedule.decay import SHAPES, Decay
from txlab.train.schedule.schedule import schedule


@schedule("cosine")
class Cosine(Decay):
    """Half a cosine from the peak to `min_ratio` of it (Loshchilov and Hutter 2017)."""

    fall = staticmethod(SHAPES["cosine"])
