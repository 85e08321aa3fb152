"""TensorBoard: event files in `RUN/tensorboard`, by our steps."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import loggers
from lightning.pytorch.utilities import rank_zero_only

from txlab.train.tracking.tracker import Tracker

COMPARED = ("train/loss", "val/loss", "val/perplexity", "val/bits_per_byte")
"""Scalars that TensorBoard's table of hyperparameters shows beside these: their last values."""


class TensorBoardLogger(Tracker, loggers.TensorBoardLogger):
    """Lightning's logger in one folder; a resumed run writes a further file into it.

    What is run again is cut from the earlier files, and a TensorBoard that has read it is told to
    forget it. Each row is on the disk before the next step begins.
    """

    def __init__(self, *, save_dir: str = ".", name: str = "tensorboard") -> None:
        super().__init__(save_dir, name="", version=name, default_hp_metric=False)
        self._step = self._last_step = 0

    def attach(self, run_dir: Path, resumed_step: int, say: Callable[[str], None]) -> None:
        super().attach(run_dir, resumed_step, say)
        if _files(self.log_dir):
            self._last_step = go_back(Path(self.log_dir), resumed_step)
            self._kwargs["purge_step"] = self._last_step + 1

    @property
    def last_step(self) -> int:
        return self._last_step

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


def go_back(folder: Path, step: int) -> int:
    """Cut the event files in `folder` behind the last whole row up to `step`; that row's step."""
    found = [(file, *event) for file in _files(folder) for event in _events(file)]
    # The last row may be there in part: it is cut as well, and comes again.
    last = max([0, *sorted({at for _, _, at in found if at <= step})[:-1]])
    begins: dict[Path, int] = {}
    for file, begin, at in found:
        if at > last:
            begins.setdefault(file, begin)
    for file, begin in begins.items():
        half = file.with_name(f"{file.name.replace('tfevents', 'half')}.tmp")
        half.write_bytes(file.read_bytes()[:begin])
        half.replace(file)
    return last


def _events(file: Path) -> Iterator[tuple[int, int]]:
    """(where it begins, its step) of each whole event: length, checksum, event, checksum."""
    from tensorboard.compat.proto import event_pb2 as messages

    read = getattr(messages, "Event").FromString  # noqa: B009
    raw, place = file.read_bytes(), 0
    while place + 12 <= len(raw):
        (length,) = struct.unpack_from("<Q", raw, place)
        end = place + 12 + length + 4
        if end > len(raw):
            return
        yield place, read(raw[place + 12 : end - 4]).step
        place = end


def _files(folder: str | Path) -> list[Path]:
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
