"""What watches a run: log, progress, checkpoints, samples, answers, trackers.

Beside Lightning's hooks these know six of our own, all but the first called by the module:
`check_plan(module, left)` before the run writes anything, to refuse what cannot be done in the
`left` steps, by RequestError,
`on_gradients(trainer, module)` when a step's gradients are whole, unscaled and not yet clipped,
`add_columns(trainer, module, row)` for each row of the log, to put more figures in, whose names
stand in its `adds`,
`on_row(trainer, module, row)` once it is complete, `on_step(trainer, module)` when a step is over,
its validation and row included, and `on_note(trainer, module, text)` for a line of news.

Those that a run has only where it is asked for them are in files of their own, beside these, and
have a preset in `conf/callbacks`.
"""

from txlab.train.callbacks.checkpoints import Checkpoints
from txlab.train.callbacks.exact_match import ExactMatch
from txlab.train.callbacks.log import Log
from txlab.train.callbacks.progress import Progress
from txlab.train.callbacks.samples import Samples
from txlab.train.callbacks.tracking import Tracking
from txlab.train.callbacks.untouched import Untouched

__all__ = ["Checkpoints", "ExactMatch", "Log", "Progress", "Samples", "Tracking", "Untouched"]
