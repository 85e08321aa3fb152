"""What trackers get beside the rows of the log: tables, pictures, checkpoints, code, summary."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from txlab.core.errors import RunError
from txlab.train.callbacks import exact_match, log, samples
from txlab.train.callbacks.checkpoints import Checkpoints
from txlab.train.history import Row
from txlab.train.loggers import Guarded
from txlab.train.tracking import Tracker, code_state

Table = tuple[str, list[str], list[list[Any]]]
"""Name, columns, rows."""
LOWER = "val/loss"
"""The figure whose best value a summary names."""


class Tracking(Callback):
    """Keeps the trackers' history that of the local log, also where an earlier process was killed.

    Stands behind the callbacks that write samples, answers and checkpoints. What an earlier process
    had not sent by its end, or sent of steps that are run again, is set right when training begins.
    Pictures are drawn at the end, however the run ends.
    """

    def __init__(
        self,
        run_dir: Path,
        checkpoints: Checkpoints,
        *,
        facts: dict[str, Any],
        resumed_step: int = 0,
    ) -> None:
        self.run_dir = run_dir
        self.checkpoints = checkpoints
        self.resumed_step = resumed_step
        self.facts = facts
        self._sent_step = checkpoints.saved_step

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if not trainer.is_global_zero or stage != "fit":
            return
        try:
            files = code_state.record(self.run_dir, self.resumed_step)
        except OSError as error:
            raise RunError(
                f"{self.run_dir} cannot be written ({error.strerror}): make room."
            ) from error
        self._tell(trainer, lambda tracker: [tracker.log_file(file) for file in files])
        metrics = self.run_dir / log.FILE
        rows = log.read_rows(metrics) if metrics.exists() else []
        self._tell(trainer, lambda tracker: self._catch_up(tracker, rows))

    def on_row(self, trainer: Trainer, module: Any, row: Row) -> None:
        if trainer.is_global_zero and trainer.loggers and "val/loss" in row:
            tables = self._tables(int(row["step"]))
            self._tell(trainer, lambda tracker: [tracker.log_table(*table) for table in tables])

    def on_step(self, trainer: Trainer, module: Any) -> None:
        self._send_checkpoint(trainer)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._send_checkpoint(trainer, last=True)
            self._close(trainer, pl_module)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._send_checkpoint(trainer)  # one that it has saved when it was told to stop
        with contextlib.suppress(Exception):  # the failure itself is what is to be said
            self._close(trainer, pl_module)

    def _catch_up(self, tracker: Tracker, rows: list[Row]) -> None:
        """Send the rows that an earlier process wrote, but its tracker does not have."""
        held = tracker.last_step
        for row in rows:
            step = int(row["step"])
            if step > held:
                tracker.log_metrics(row, step)  # pyright: ignore[reportAttributeAccessIssue]
                for table in self._tables(step):
                    tracker.log_table(*table)

    def _tables(self, step: int) -> list[Table]:
        """What was generated at `step`."""
        found: list[Table] = []
        file = self.run_dir / samples.FILE
        if file.exists():
            texts = [[at, text] for at, text in samples.read_samples(file) if at == step]
            found += [("samples", ["step", "text"], texts)] if texts else []
        file = self.run_dir / exact_match.FILE
        if file.exists():
            answers = [one for one in exact_match.read_answers(file) if one["step"] == step]
            if answers:
                columns = list(answers[0])
                found.append(("answers", columns, [[a[c] for c in columns] for a in answers]))
        return found

    def _send_checkpoint(self, trainer: Trainer, *, last: bool = False) -> None:
        step = self.checkpoints.saved_step
        if not trainer.loggers or step < 0 or (step == self._sent_step and not last):
            return
        path, self._sent_step = self.checkpoints.folder / f"step-{step:06d}", step
        self._tell(trainer, lambda tracker: tracker.log_checkpoint(path, step, last=last))

    def _close(self, trainer: Trainer, module: Any) -> None:
        if not trainer.is_global_zero:
            return
        from txlab.train import curves, report

        pictures = curves.pictures(self.run_dir, module, self.facts)
        self._tell(trainer, lambda tracker: [tracker.log_picture(path) for path in pictures])
        if trainer.loggers:
            known = report.summarise(self.run_dir, module, self.facts)
            numbers = {key: value for key, value in known.items() if isinstance(value, int | float)}
            figures = {**numbers, **best(self.run_dir / log.FILE)}
            self._tell(trainer, lambda tracker: tracker.log_summary(figures))

    def _tell(self, trainer: Trainer, call: Callable[[Tracker], Any]) -> None:
        for logger in trainer.loggers:
            if isinstance(logger, Guarded):
                logger.tell(call)


def best(metrics: Path) -> dict[str, float]:
    """The lowest held-out loss of a `metrics.csv` and its step; empty where it has none."""
    rows = log.read_rows(metrics) if metrics.exists() else []
    found = [(row[LOWER], row["step"]) for row in rows if row.get(LOWER) == row.get(LOWER, 0)]
    if not found:
        return {}
    value, step = min(found)
    return {f"best/{LOWER}": value, "best/step": step}
