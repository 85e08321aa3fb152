"""What watches a run: log, progress, checkpoints, samples, answers, trackers.

Beside Lightning's hooks these know three of our own, called by the module:
`on_row(trainer, module, row)` for each row of the log, `on_step(trainer, module)` when a step is
over, its validation and row included, and `on_note(trainer, module, text)` for a line of news.
"""

from txlab.train.callbacks.checkpoints import Checkpoints
from txlab.train.callbacks.exact_match import ExactMatch
from txlab.train.callbacks.log import Log
from txlab.train.callbacks.progress import Progress
from txlab.train.callbacks.samples import Samples
from txlab.train.callbacks.tracking import Tracking

__all__ = ["Checkpoints", "ExactMatch", "Log", "Progress", "Samples", "Tracking"]
