"""Histories read back: the local log, W&B's offline files, TensorBoard's event files."""

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from txlab.train.callbacks.log import read_rows
from txlab.train.tracking import wandb_history

Histories = dict[int, dict[str, Any]]
"""Values by name by step."""


def local(run: Path) -> Histories:
    return {int(row["step"]): row for row in read_rows(run / "metrics.csv")}


def segments(run: Path) -> list[Path]:
    """W&B's files of the run; the last process has written its own to the end."""
    files = wandb_history.segments(run, (run / "wandb_id.txt").read_text())
    deadline = time.monotonic() + 60
    while files and not _ended(files[-1]) and time.monotonic() < deadline:
        time.sleep(0.05)  # W&B's own process goes on writing when the run is told to be finished
    return files


def _ended(file: Path) -> bool:
    return any(record.HasField("exit") for _, record in wandb_history.records(file))


def wandb(run: Path) -> Histories:
    """What all processes of the run wrote together; no step twice."""
    files = segments(run)
    assert files
    found = [row for file in files for row in wandb_history.rows(file)]
    doubled = [step for step, n in Counter(step for step, _ in found).items() if n > 1]
    assert not doubled
    assert [step for step, _ in found] == sorted(step for step, _ in found)
    return dict(found)


def tensorboard(run: Path) -> Any:
    """TensorBoard's own reader; it leaves out what a later file has taken back."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "tensors": 0, "images": 0})
    return reader.Reload()


def assert_tracked(run: Path, *, tensorboards: bool = True) -> None:
    """Both trackers have the run's own log: each step once, each value as it stands there."""
    rows = local(run)
    assert rows
    sent = wandb(run)
    assert list(sent) == list(rows)
    for step, row in rows.items():
        assert {name: value for name, value in sent[step].items() if name in row} == row
    if not tensorboards:
        return
    reader = tensorboard(run)
    names = {name for row in rows.values() for name in row if name != "step"}
    assert set(reader.Tags()["scalars"]) == names
    for name in names:
        ours = [(step, np.float32(row[name])) for step, row in rows.items() if name in row]
        theirs = [(event.step, np.float32(event.value)) for event in reader.Scalars(name)]
        assert all(math.isfinite(value) for _, value in theirs)
        assert theirs == ours
