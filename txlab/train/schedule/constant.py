"""No decay."""

from txlab.train.schedule.schedule import Schedule, schedule


@schedule("constant")
class Constant(Schedule):
    """The peak to the end, after the warm-up."""

    def after(self, progress: float) -> float:
        return 1.0
