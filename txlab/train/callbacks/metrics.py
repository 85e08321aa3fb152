"""Metrics of other people's, from torchmetrics, on the held-out tokens of a validation."""

import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor
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

    def check_plan(self, module: Any, left: int) -> None:
        """Each metric is shown two made-up tokens: a wrong one is not to end a run at its end."""
        logits, labels = torch.eye(2, module.model.dims.vocab_size), torch.arange(2)
        for name, metric in self.metrics.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # two tokens are too few for some
                try:
                    self._update(name, metric, logits, labels)
                    _single(name, metric.compute())
                except RunError as error:
                    raise RequestError(str(error)) from error
            metric.reset()

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
                self._update(name, metric, logits, labels[begin : begin + CHUNK])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._hook.remove()
        self._hook, one = None, torch.ones((), device=pl_module.device)
        for name, metric in self.metrics.items():
            with warnings.catch_warnings():  # a rank may have had fillers alone
                warnings.filterwarnings("ignore", message=".*was called before the ``update``.*")
                value = _single(name, metric.compute())
            # The same on all ranks, so that its mean over them is itself.
            pl_module.held_out.add({name: (value.to(one.device).reshape(()), one)})

    def _update(self, name: str, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        try:
            metric.update(logits, labels)
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            raise RunError(
                f"callbacks.metrics: {name} ({type(metric).__name__}) cannot read logits [n, v] "
                f"and labels [n]: {' '.join(str(error).split())[:200]}"
            ) from error

    def _keep(self, module: Any, args: Any, output: Any) -> None:
        self._states = output.states


def _single(name: str, value: Any) -> Tensor:
    n = 1 if isinstance(value, (int, float)) else getattr(value, "numel", lambda: 0)()
    if n != 1:
        said = f"{n} values" if n else f"a {type(value).__name__}"
        raise RunError(
            f"callbacks.metrics: {name} gives {said}; choose one that gives a single number, such "
            "as average=micro."
        )
    return torch.as_tensor(value)
