"""The weights after every step, written down or compared with those of another run."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.train.divergence import APART, ROWS, apart
from txlab.train.history import Row
from txlab.train.strategy.shards import all_whole
from txlab.train.weights import adapter_tensors, differences, named_tensors

LARGE = 2**30
"""Bytes of a record from which on its size is said first."""
FIGURES = ("step", "updates", "tokens", "train/loss", "grad_norm", "lr", "skipped")


class Trace(Callback):
    """Writes each step's loss to `folder`, and each `every`-th step's weights.

    With `against`, the folder of another trace, the weights are compared with those of the same
    step there, tensor by tensor, and only the differences are written. Step 0 is the start, and
    the first entry of a resumed run the step that it goes on from.
    """

    def __init__(
        self,
        folder: str,
        against: str | None = None,
        *,
        steps: int,
        every: int = 1,
        tolerance: float = 0.0,
    ) -> None:
        self.folder = Path(folder)
        self.against = None if against is None else Path(against)
        self.steps = steps
        self.every = every
        self.tolerance = tolerance
        self._row: Row = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        tensors = traced(pl_module.model, keep=trainer.is_global_zero)
        if trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.against is None:
                self._refuse_without_room(tensors)
            else:
                with safe_open(_file(self.against, 0), "pt") as other:
                    _refuse_others({name: other.get_slice(name) for name in other.keys()}, tensors)  # noqa: SIM118
        self._take(trainer, pl_module.counters.step, tensors)

    def on_row(self, trainer: Trainer, module: Any, row: Row) -> None:
        self._row = {key: row[key] for key in FIGURES if key in row}

    def on_step(self, trainer: Trainer, module: Any) -> None:
        step = module.counters.step
        if trainer.is_global_zero:
            _append(self.folder / ROWS, self._row)
        if step % self.every == 0 or step == self.steps:
            self._take(trainer, step, traced(module.model, keep=trainer.is_global_zero))

    def _take(self, trainer: Trainer, step: int, tensors: Mapping[str, Tensor]) -> None:
        if not trainer.is_global_zero:
            return
        if self.against is None:
            plain = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
            save_file(plain, _file(self.folder, step))
            return
        if not _file(self.against, step).exists():
            return
        found = {}
        with (
            safe_open(_file(self.against, 0), "pt") as start,
            safe_open(_file(self.against, step), "pt") as other,
        ):
            for name, tensor in tensors.items():
                mine, theirs = tensor.detach().cpu(), other.get_tensor(name)
                one = apart(theirs, mine, start.get_tensor(name), self.tolerance)
                if one is not None:
                    found[name] = one
        _append(self.folder / APART, {"step": step, "tensors": len(tensors), "apart": found})

    def _refuse_without_room(self, tensors: Mapping[str, Tensor]) -> None:
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        size *= self.steps // self.every + 2
        free = shutil.disk_usage(self.folder).free
        said = f"the weights of {self.steps // self.every + 1} steps take {size / 2**20:,.0f} MiB"
        if size > free:
            raise RequestError(
                f"{said}, and {self.folder} has room for {free / 2**20:,.0f}: give fewer steps, a "
                "larger every, or a TMPDIR with more room."
            )
        if size > LARGE:
            print(f"record      {said} in {self.folder}", file=sys.stderr, flush=True)


def traced(model: Any, *, keep: bool) -> dict[str, Tensor]:
    """All tensors of a model by name, those of its adapter as `adapter.NAME`.

    Sharded ones are put together, which takes all ranks; one that does not `keep` them has none.
    """
    adapter = adapter_tensors(model) or {}
    found = {**named_tensors(model), **{f"adapter.{name}": t for name, t in adapter.items()}}
    return all_whole(found, keep=keep)


def _refuse_others(theirs: Mapping[str, Any], ours: Mapping[str, Tensor]) -> None:
    """RequestError where the two runs have no tensors in common to compare."""
    shapes = {name: Shape(part.get_shape()) for name, part in theirs.items()}
    problems = differences({name: Shape(t.shape) for name, t in ours.items()}, shapes)  # type: ignore[arg-type]
    if problems:
        raise RequestError(
            f"A and B have other tensors ({'; '.join(problems)}): weights of one shape are "
            "compared; give both the same model."
        )


class Shape:
    """A tensor's shape without the tensor."""

    def __init__(self, shape: Any) -> None:
        self.shape = tuple(shape)


def _file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}.safetensors"


def _append(file: Path, entry: Mapping[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")
