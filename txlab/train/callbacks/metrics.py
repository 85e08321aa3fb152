"""Metrics of other people's, from torchmetrics, on the held-out tokens of a validation."""

import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torchmetrics import Metric

from txlab.core.errors import RequestError, RunError
from txlab.data.batch import IGNORE

CHUNK = 4096
"""Tokens whose logits are made at once: those of a whole batch are never held."""


class Metrics(Callback):
    """Updates each of `metrics` with (logits [n, v], labels [n]) of the supervised tokens.

    The results join the held-out figures as `val/NAME`. Every token counts once, whatever the
    batches and ranks: torchmetrics adds its own sums up over ranks, and rows that only fill a batch
    up have no labels. Weights and training's random numbers are untouched.
    """

    def __init__(self, metrics: dict[str, Any]) -> None:
        for name, metric in metrics.items():
            if not isinstance(metric, Metric):
                raise RequestError(
                    f"callbacks.metrics.metrics.{name} is {type(metric).__name__}: expected a "
                    "torchmetrics Metric, as a mapping with its _target_."
                )
        self.metrics: dict[str, Metric] = dict(metrics)
        self.adds = [f"val/{name}" for name in metrics]
        self._states: Any = None
        self._hook: Any = None

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        for metric in self.metrics.values():
            metric.reset()
            metric.to(pl_module.device)
        self._hook = pl_module.model.register_forward_hook(self._keep)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        states, self._states = self._states, None
        labels = batch["labels"]
        if states is None or states.shape[:2] != labels.shape:
            raise RunError(
                "callbacks.metrics: this objective does not run the model once over its rows with "
                "a state for every label: leave the callback out."
            )
        supervised = labels != IGNORE
        states, labels = states[supervised], labels[supervised]
        for begin in range(0, len(labels), CHUNK):
            logits = pl_module.model.logits(states[begin : begin + CHUNK]).float()
            for name, metric in self.metrics.items():
                try:
                    metric.update(logits, labels[begin : begin + CHUNK])
                except (TypeError, ValueError, RuntimeError, IndexError) as error:
                    raise RunError(
                        f"callbacks.metrics: {name} ({type(metric).__name__}) cannot read logits "
                        f"[n, v] and labels [n]: {' '.join(str(error).split())[:200]}"
                    ) from error

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._hook.remove()
        self._hook, one = None, torch.ones((), device=pl_module.device)
        for name, metric in self.metrics.items():
            with warnings.catch_warnings():  # a rank may have had fillers alone
                warnings.filterwarnings("ignore", message=".*was called before the ``update``.*")
                value = torch.as_tensor(metric.compute())
            if value.numel() != 1:
                raise RunError(
                    f"callbacks.metrics: {name} gives {value.numel()} values; choose one that "
                    "gives a single number, such as average=micro."
                )
            # The same on all ranks, so that its mean over them is itself.
            pl_module.held_out.add({name: (value.to(one.device).reshape(()), one)})

    def _keep(self, module: Any, args: Any, output: Any) -> None:
        self._states = output.states
