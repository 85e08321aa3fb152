"""The names of a run's figures, known before its first step, for what is to follow one of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from txlab.core.errors import RequestError
from txlab.core.nearest import did_you_mean
from txlab.data.batch import Batch
from txlab.train.history import Sums, held_out_pairs, held_out_row
from txlab.train.state import random_kept

if TYPE_CHECKING:
    from txlab.schema import Config

ALWAYS = (
    "step",
    "updates",
    "tokens",
    "skipped",
    "tokens_per_s",
    "mfu",
    "train/loss",
    "lr",
    "grad_norm",
)
"""Columns that every log has."""


class UnknownFigure(RequestError):
    """A figure that `key` names will not be there."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def asked_for(config: "Config", callbacks: Sequence[Any]) -> dict[str, str]:
    """Figures that something in the run follows, by the key that asks for them."""
    found: dict[str, str] = {}
    if config.train.keep_best or config.train.best != type(config.train)().best:
        found["train.best"] = config.train.best
    for callback in callbacks:
        found |= getattr(callback, "follows", {})
    metric = config.sweep.metric
    if metric.startswith("val/") and metric != type(config.sweep)().metric:
        found["sweep.metric"] = metric
    return found


def refuse_unknown(
    asked: Mapping[str, str],
    module: Any,
    callbacks: Sequence[Any],
    batches: Mapping[str | None, Iterable[Batch]],
) -> None:
    """UnknownFigure where one in `asked` will not be there.

    What a validation gives beside its loss is told by the objective itself: it is shown the first
    of the held-out `batches` of each source, which costs a forward pass where a name needs it.
    What callbacks add is known by their `adds` (one that ends with / stands for all that begin
    with it); one that has `add_columns` alone may add anything.
    """
    if any(hasattr(c, "add_columns") and not hasattr(c, "adds") for c in callbacks):
        return
    added = [name for callback in callbacks for name in getattr(callback, "adds", ())]
    families = tuple(name for name in added if name.endswith("/"))
    known = [*ALWAYS, *added, *(["val/loss"] if module.validates else [])]
    left = {key: n for key, n in asked.items() if n not in known and not n.startswith(families)}
    if left and module.validates:
        known += _held_out(module, batches)
    for key, name in left.items():
        if name not in known:
            why = _why(name, known, validates=module.validates)
            raise UnknownFigure(key, f"{key}={name}: {why}")


def _held_out(module: Any, batches: Mapping[str | None, Iterable[Batch]]) -> list[str]:
    """Names of the figures of a validation and, of what the objective reports, of training."""
    sums = Sums()
    with random_kept(), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        module.model.eval()
        for source, some in batches.items():
            if (batch := next(iter(some), None)) is not None:
                loss = module.objective(module.model, batch)
                sums.add(held_out_pairs(loss, batch["labels"], module.token_bytes, source))
        module.model.train()
    row = held_out_row(sums)
    return [*row, *(f"train/{name}" for name in sums.names if "/" not in name and name != "bytes")]


def _why(name: str, known: list[str], *, validates: bool) -> str:
    if not validates and name.startswith("val/"):
        return "nothing is held out here, so that there is no such figure."
    known = list(dict.fromkeys(known))
    hint = did_you_mean(name, known, n=2, cutoff=0.6)
    return f"the run will have no such figure.{hint} It will have {', '.join(known)}."
