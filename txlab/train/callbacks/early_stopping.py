"""Ends a run whose held-out figure has stopped getting better."""

import math
from typing import Any

from lightning.pytorch import Callback, Trainer

from txlab.core.errors import RequestError


class EarlyStopping(Callback):
    """Ends the run after `patience` validations in a row without a better `monitor`.

    Better is lower by more than `min_delta`, or higher with `mode=max`; a figure that is not
    finite ends the run at once. The run ends like any other: with a checkpoint and a summary. What
    was seen is saved, so that a resumed run ends where the unbroken one would.
    """

    def __init__(
        self,
        monitor: str = "val/loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "min",
    ) -> None:
        if mode not in ("min", "max"):
            raise RequestError(f"callbacks.early_stopping.mode={mode}: expected min or max.")
        if patience < 1 or min_delta < 0:
            raise RequestError(
                f"callbacks.early_stopping: patience={patience} and min_delta={min_delta} must be "
                "at least 1 and 0."
            )
        self.monitor, self.patience, self.min_delta, self.mode = monitor, patience, min_delta, mode
        self.best = math.inf if mode == "min" else -math.inf
        self.best_step = self.waited = 0

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        row, step = pl_module.last_row, pl_module.counters.step
        if self.monitor not in row:
            known = ", ".join(sorted(key for key in row if key.startswith("val/")))
            pl_module.given_up = (
                f"callbacks.early_stopping.monitor={self.monitor}: the run has no such figure; "
                f"it has {known}"
            )
            return
        value = row[self.monitor]
        ahead = self.best - value if self.mode == "min" else value - self.best
        if ahead > self.min_delta:
            self.best, self.best_step, self.waited = value, step, 0
            return
        self.waited += 1
        if not math.isfinite(value):
            self._stop(trainer, pl_module, f"{self.monitor} is {value}")
        elif self.waited >= self.patience:
            better = f"{self.best:.4f} at step {self.best_step}"
            reason = f"{self.monitor} is not better than {better} after {self.waited} validations"
            self._stop(trainer, pl_module, reason)

    @property
    def follows(self) -> dict[str, str]:
        """The figure that is followed, by the key that says so."""
        return {"callbacks.early_stopping.monitor": self.monitor}

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in ("best", "best_step", "waited"):
            setattr(self, name, state_dict[name])

    def _stop(self, trainer: Trainer, module: Any, reason: str) -> None:
        trainer.should_stop = True
        if module.counters.step < module.total_steps:
            module.stopped = f"at step {module.counters.step}: {reason}"
            module.tell("on_note", f"stopped     {module.stopped}")
