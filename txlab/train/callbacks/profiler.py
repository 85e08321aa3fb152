"""Where the time of a step goes: a trace, the costliest operations, and shares by phase."""

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch.profiler import ProfilerActivity, profile

from txlab.core.errors import RequestError, RunError

TRACE, TABLE = "trace.json", "profile.txt"
PHASES = ("data", "forward", "backward", "optimizer", "other")


class Profiler(Callback):
    """Profiles `steps` steps, once `skip` of them have warmed all up.

    Writes `trace.json` (for chrome://tracing or Perfetto) and `profile.txt`: shares of the time by
    phase, and the operations that take most of it, which are also printed. A GPU is waited for at
    every seam of phases, so the profiled steps are a little slower than others. Of several ranks it
    is rank 0 that is profiled.
    """

    def __init__(
        self, run_dir: Path | str, *, skip: int = 3, steps: int = 5, operations: int = 12
    ) -> None:
        if skip < 1 or steps < 1 or operations < 1:
            raise RequestError(
                f"callbacks.profiler: skip={skip}, steps={steps} and operations={operations} must "
                "be at least 1."
            )
        self.run_dir, self.skip, self.steps = Path(run_dir), skip, steps
        self.operations = operations
        self.seconds: dict[str, float] = defaultdict(float)
        self._profile: profile | None = None
        self._seen = 0
        self._mark = 0.0
        self._hooks: list[Any] = []
        self._device = torch.device("cpu")

    def check_plan(self, module: Any, left: int) -> None:
        if 0 < left < self.skip + self.steps:
            raise RequestError(
                f"callbacks.profiler: {left} steps are left, fewer than skip={self.skip} and "
                f"steps={self.steps} together: set a larger train.steps."
            )

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._device = pl_module.device

    def on_step(self, trainer: Trainer, module: Any) -> None:
        """A step is over, its validation and saving too: here one begins or ends to be profiled."""
        if not trainer.is_global_zero:
            return
        self._seen += 1
        if self._seen == self.skip:
            self._begin(module)
        elif self._profile is not None and self._seen == self.skip + self.steps:
            self._end(module)
        self._lap(None)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        self._lap("data")

    def on_before_backward(self, trainer: Trainer, pl_module: Any, loss: Any) -> None:
        self._lap("other")

    def on_after_backward(self, trainer: Trainer, pl_module: Any) -> None:
        self._lap("backward")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._lap("optimizer")

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._profile is not None:
            self._profile.stop()
        self._hooks, self._profile = [], None

    def _begin(self, module: Any) -> None:
        self._hooks = [
            module.objective.register_forward_pre_hook(lambda *_: self._lap("other")),
            module.objective.register_forward_hook(lambda *_: self._lap("forward")),
        ]
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # it would print when it starts and stops
        kinds = [ProfilerActivity.CPU]
        kinds += [ProfilerActivity.CUDA] if self._device.type == "cuda" else []
        self._profile = profile(activities=kinds)
        self._profile.start()

    def _end(self, module: Any) -> None:
        assert self._profile is not None
        done, self._profile = self._profile, None
        done.stop()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        rows = operations(done, cuda=self._device.type == "cuda")
        said = [*shares(self.seconds, self.steps), *top(rows, self.operations)]
        try:
            done.export_chrome_trace(str(self.run_dir / TRACE))
            (self.run_dir / TABLE).write_text("\n".join(said) + "\n", encoding="utf-8")
        except OSError as error:
            raise RunError(
                f"{self.run_dir / TRACE} cannot be written ({error.strerror}): make room."
            ) from error
        for line in [*said, f"profile     {TRACE} and {TABLE} in the run folder"]:
            module.tell("on_note", line)

    def _lap(self, phase: str | None) -> None:
        """Count the time since the last mark for `phase`, and set a mark."""
        if self._profile is None:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        if phase is not None:
            self.seconds[phase] += now - self._mark
        self._mark = now


def shares(seconds: dict[str, float], steps: int) -> list[str]:
    """A line on each phase: its time in a step and its share."""
    total = sum(seconds.values())
    lines = [f"profile     {steps} steps of {1e3 * total / steps:.1f} ms"]
    for phase in PHASES:
        found = seconds.get(phase, 0.0)
        share = found / total if total else 0.0
        lines.append(f"  {phase:<10}{1e3 * found / steps:>9.1f} ms {share:>7.1%}")
    return lines


def operations(done: profile, *, cuda: bool) -> list[tuple[str, int, float]]:
    """(name, calls, milliseconds in itself) of every operation, the costliest first."""
    found = [
        (
            event.key,
            event.count,
            (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3,
        )
        for event in done.key_averages()
    ]
    return sorted(found, key=lambda row: -row[2])


def top(rows: list[tuple[str, int, float]], n: int) -> list[str]:
    """Lines on the `n` costliest of `operations`, with their shares of the time of all."""
    total = sum(ms for *_, ms in rows) or 1.0
    lines = [f"  {'operation':<44}{'calls':>7}{'ms':>10}{'share':>8}"]
    for name, calls, ms in rows[:n]:
        short = name if len(name) <= 43 else f"{name[:40]}..."
        lines.append(f"  {short:<44}{calls:>7}{ms:>10.1f}{ms / total:>8.1%}")
    return lines
