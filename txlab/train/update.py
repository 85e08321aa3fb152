"""The one update of a step: clip once, step once, or leave everything alone."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from txlab.core.errors import RunError
from txlab.train.clip import gradient_norm, scale_gradients
from txlab.train.config import Train
from txlab.train.history import Window
from txlab.train.masters import Masters
from txlab.train.schedule.schedule import Schedule
from txlab.train.state import Counters


class Updater:
    """Owns when the weights move, how far, and what a step without an update leaves untouched."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        train: Train,
        masters: Masters | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.masters = masters
        self.schedule = schedule
        self.config = train
        self.peaks = [group["lr"] for group in optimizer.param_groups]
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def __call__(
        self,
        count: Tensor,
        loss: Tensor,
        counters: Counters,
        window: Window,
        *,
        step: Callable[[], Any],
        scaler: Any = None,
        watch: Callable[[], Any] | None = None,
    ) -> str | None:
        """Apply the gradients of a step with `count` supervised items; a note where it did not.

        `loss` is the sum of its losses: one that is not 0 must have a gradient, else RunError.

        `step` makes the optimizer's own step. Nothing moves, but for the count of such steps, when
        nothing was supervised or the gradient is not finite. `scaler` is a GradScaler or None.
        `watch` is called while the gradients are those of the step, unscaled and not yet clipped.
        """
        if self.masters is not None:
            self.masters.collect()
        if scaler is not None and bool(count):
            scaler.unscale_(self.optimizer)
        # The one time a step waits for the device: whether to apply the update is decided here.
        found = torch.stack([gradient_norm(self.parameters), count.float(), loss.float()])
        norm, supervised, total = found.tolist()
        counters.supervised += int(supervised)
        factor = self.schedule.factor(counters.updates)
        window.lr = self.optimizer.defaults.get("lr", self.peaks[0]) * factor
        note = None
        if not supervised:
            counters.empty += 1
        elif not math.isfinite(norm):
            note = self._skip(norm, counters)
        elif norm == 0 and total != 0:
            raise RunError(
                f"step {counters.step + 1}: the loss is not 0, but no trained parameter has a "
                "gradient: something between them cuts the graph (a frozen part, no_grad, detach)."
            )
        else:
            counters.skips_in_row = 0
            window.norms.append(norm)
            if watch is not None:
                watch()
            clip = self.config.clip
            if clip is not None and norm > clip:
                scale_gradients(self.parameters, clip / (norm + 1e-6))
            for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
                group["lr"] = peak * factor
            if scaler is None:
                step()
            else:
                scaler.step(self.optimizer)
            if self.masters is not None:
                self.masters.write_back()
            counters.updates += 1
        if scaler is not None and supervised:
            scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return note

    def _skip(self, norm: float, counters: Counters) -> str:
        where = f"step {counters.step + 1}: the gradient's norm is {norm}"
        if not self.config.skip_nonfinite:
            raise RunError(f"{where}; lower optim.lr, or set train.skip_nonfinite=true to go on.")
        counters.skipped += 1
        counters.skips_in_row += 1
        if counters.skips_in_row >= self.config.max_skipped:
            raise RunError(
                f"{where}, as in all of the last {counters.skips_in_row} steps: the run has "
                "diverged; lower optim.lr (train.max_skipped is how many may be skipped in a row)."
            )
        return f"{where}: update skipped, weights and schedule unchanged"
