"""The local log: `metrics.csv` and `metrics.jsonl`, a row per window of steps, for every logger."""

import csv
import json
import math
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from txlab.core.errors import RequestError, RunError
from txlab.train.history import Row

FILE, LINES = "metrics.csv", "metrics.jsonl"
COLUMNS = (
    "step",
    "updates",
    "tokens",
    "train/loss",
    "val/loss",
    "val/perplexity",
    "val/bits_per_byte",
    "lr",
    "grad_norm",
    "tokens_per_s",
    "mfu",
    "skipped",
)
WHOLE = ("step", "updates", "tokens", "skipped")


class Log(Callback):
    """Appends rows to `metrics.csv` and `metrics.jsonl`, and passes them to the trainer's loggers.

    The first has a cell for every column, the second only the values there are. On resume, rows
    beyond the resumed step are cut: the steps are about to be run again.
    """

    def __init__(self, run_dir: Path, *, resumed_step: int = 0) -> None:
        self.file = run_dir / FILE
        self.lines = run_dir / LINES
        self.resumed_step = resumed_step
        self.columns = list(COLUMNS)

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if not trainer.is_global_zero or not self.file.exists():
            return
        rows = [row for row in read_rows(self.file) if row["step"] <= self.resumed_step]
        names = [name for row in rows for name in row]
        self.columns = list(dict.fromkeys([*self.columns, *names]))
        try:
            self._rewrite(rows)
            half = self.lines.with_suffix(".tmp")
            half.write_text("".join(map(_line, rows)), encoding="utf-8")
            half.replace(self.lines)
        except OSError as error:
            raise self._refused(error) from error

    def on_row(self, trainer: Trainer, module: Any, row: Row) -> None:
        if trainer.is_global_zero:
            try:
                self._append(row)
                with self.lines.open("a", encoding="utf-8") as stream:
                    stream.write(_line(row))
            except OSError as error:
                raise self._refused(error) from error
        for logger in trainer.loggers:
            logger.log_metrics(row, step=int(row["step"]))

    def _refused(self, error: OSError) -> RunError:
        return RunError(f"{self.file} cannot be written ({error.strerror}): make room.")

    def _append(self, row: Row) -> None:
        new = [name for name in row if name not in self.columns]
        if new and self.file.exists():
            rows = read_rows(self.file)
            self.columns += new
            self._rewrite(rows)
        self.columns += [name for name in row if name not in self.columns]
        fresh = not self.file.exists()
        with self.file.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            if fresh:
                writer.writerow(self.columns)
            writer.writerow([_text(row.get(name)) for name in self.columns])

    def _rewrite(self, rows: list[Row]) -> None:
        temporary = self.file.with_suffix(".tmp")
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(self.columns)
            writer.writerows([_text(row.get(name)) for name in self.columns] for row in rows)
        temporary.replace(self.file)


def read_rows(file: Path) -> list[Row]:
    """Rows of a `metrics.csv`; empty cells are left out, a torn last line is dropped.

    RequestError where it is not ours or damaged.
    """
    rows: list[Row] = []
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.reader(stream))
        for line in lines[1:]:
            if len(line) != len(lines[0]):
                continue
            cells = dict(zip(lines[0], line, strict=True))
            row = {k: int(v) if k in WHOLE else float(v) for k, v in cells.items() if v}
            rows.append({"step": row["step"], **row})
    except (ValueError, KeyError, csv.Error) as error:
        raise RequestError(
            f"{file} is damaged or not ours ({error}): mend it or move it away."
        ) from error
    return rows


def _text(value: float | None) -> str:
    return "" if value is None else repr(value)


def _line(row: Row) -> str:
    """A row as a line of JSON, which has no number for what is not finite: text stands for it."""
    return json.dumps({k: v if math.isfinite(v) else str(v) for k, v in row.items()}) + "\n"
