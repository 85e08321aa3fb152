"""What a tracker takes beside metrics; each does what it can and leaves out the rest."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Tracker:
    """Joins one of Lightning's loggers; every step is the run's own, the one of metrics.csv.

    A resumed run goes back to `resumed_step`. The tracker then lets go of what lies beyond, if it
    can, and `last_step` is the last step it still holds: rows up to there are not taken again,
    those after it are told anew from the local log.
    """

    run_dir = Path()
    resumed_step = 0
    say: Callable[[str], None] = print

    def attach(self, run_dir: Path, resumed_step: int, say: Callable[[str], None]) -> None:
        """Said once, before anything is logged: where the run is and who hears of trouble."""
        self.run_dir, self.resumed_step, self.say = run_dir, resumed_step, say

    @property
    def last_step(self) -> int:
        """The last step that is in the history already; 0: none is."""
        return 0

    def log_table(self, key: str, columns: Sequence[str], data: Sequence[Sequence[Any]]) -> None:
        """A table that belongs to the row that was logged last."""

    def log_file(self, path: Path) -> None:
        """A small file of the run folder, such as the code state."""

    def log_picture(self, path: Path) -> None:
        """A finished picture of the run folder."""

    def log_checkpoint(self, path: Path, step: int, *, last: bool) -> None:
        """A complete checkpoint; `last`: the run has ended with it."""

    def log_summary(self, figures: Mapping[str, Any]) -> None:
        """Figures of the whole run, known at its end."""
