"""TensorBoard: event files in `RUN/tensorboard`, by our steps."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.pytorch import loggers
from lightning.pytorch.utilities import rank_zero_only

from txlab.train.tracking.tracker import Tracker

COMPARED = ("train/loss", "val/loss", "val/perplexity", "val/bits_per_byte")
"""Scalars that TensorBoard's table of hyperparameters shows beside these: their last values."""


class TensorBoardLogger(Tracker, loggers.TensorBoardLogger):
    """Lightning's logger in one folder; a resumed run writes a further file into it.

    That file begins with the word from which step on earlier events do not count, which TensorBoard
    and its readers obey. Each row is on the disk before the next step begins.
    """

    def __init__(self, *, save_dir: str = ".", name: str = "tensorboard") -> None:
        super().__init__(save_dir, name="", version=name, default_hp_metric=False)
        self._step = 0

    def attach(self, run_dir: Path, resumed_step: int, say: Callable[[str], None]) -> None:
        super().attach(run_dir, resumed_step, say)
        if _files(self.log_dir):
            self._kwargs["purge_step"] = self.last_step + 1

    @cached_property
    def last_step(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        steps = [0]
        for file in _files(self.log_dir):
            with contextlib.suppress(Exception):  # a record torn by a kill ends its file
                steps += [event.step for event in EventFileLoader(str(file)).Load()]
        # The last row may be there in part: it is taken back and comes again.
        return max([0, *sorted({step for step in steps if step <= self.resumed_step})[:-1]])

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """A row of the log, or what somebody else logs at a step of theirs."""
        if "step" in metrics:
            self._step = int(metrics["step"])
            if self._step <= self.last_step:
                return
        super().log_metrics({k: v for k, v in metrics.items() if k != "step"}, step)
        self.experiment.flush()

    @rank_zero_only
    def log_hyperparams(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, params: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """The config, and which scalars to show beside it: their values come from the scalars."""
        from torch.utils.tensorboard.summary import hparams

        if _files(self.log_dir):
            return
        flat = {key: _plain(value) for key, value in _flat(params).items()}
        experiment, start, _ = hparams(flat, dict.fromkeys(COMPARED, 0.0))
        writer = self.experiment._get_file_writer()
        for summary in (experiment, start):
            writer.add_summary(summary)  # pyright: ignore[reportOptionalMemberAccess]
        self.experiment.flush()

    def log_table(self, key: str, columns: Sequence[str], data: Sequence[Sequence[Any]]) -> None:
        if self._step <= self.last_step:
            return
        lines = [columns, ["---"] * len(columns), *data]
        text = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
        self.experiment.add_text(key, text, self._step)
        self.experiment.flush()

    def log_picture(self, path: Path) -> None:
        import numpy as np
        from PIL import Image

        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self.experiment.add_image(path.stem, pixels, self._step, dataformats="HWC")

    @rank_zero_only
    def save(self) -> None:
        """Lightning's own list of hyperparameters would be a second config.yaml: left out."""
        self.experiment.flush()


def _files(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("events.out.tfevents.*"))


def _flat(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        at = f"{path}.{key}".lstrip(".")
        found |= _flat(value, at) if isinstance(value, Mapping) else {at: value}
    return found


def _plain(value: Any) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _cell(value: Any) -> str:
    """`value` as a cell of a Markdown table."""
    return str(value).replace("|", "\\|").replace("\n", "<br>")
