"""Measure a trained model on held-out text: loss, perplexity, bits per byte.

    python -m txlab evaluate ckpt=RUN
    python -m txlab evaluate ckpt=RUN data.path=FILE data.val_fraction=0.5

Without further words the run's own held-out part is measured, the same one it validated on. Words
after ckpt change the saved config: other data, another data.batch_size. Nothing is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from txlab.core.arguments import parse
from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from txlab.data.source import Data
    from txlab.models import Model
    from txlab.schema import Config


@dataclass
class Arguments:
    """What the verb takes beside overrides of the saved config."""

    ckpt: str
    """Run folder or checkpoint to measure."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, mps."""


def main(words: Sequence[str]) -> int:
    """Print the figures of a checkpoint on held-out text."""
    from txlab.core.hydra import prepare
    from txlab.core.hydra.surgery import amend
    from txlab.data.source import data
    from txlab.loading import load, saved_config
    from txlab.train.checkpoint import find

    arguments, rest = parse(Arguments, words, rest=True)
    checkpoint = find(Path(arguments.ckpt).expanduser()).path
    config = amend(saved_config(checkpoint), prepare(rest), ("data", "objective"), "the model")
    model = load(checkpoint)
    made = data.build(
        config.data,
        getattr(model, "tokenizer"),  # noqa: B009
        context=config.model.context,
        seed=config.seed,
    )
    made.prepare()
    if len(made.val) == 0:
        raise RequestError("nothing is held out: give data.val_fraction above 0.")
    model.to(arguments.device)
    for key, value in measure(config, model, made).items():
        print(f"{key:20s} {value:,.4f}")
    return 0


@torch.inference_mode()
def measure(config: "Config", model: "Model", made: "Data") -> dict[str, Any]:
    """Token-weighted figures over the whole held-out part."""
    from txlab.objectives import objective
    from txlab.train.history import Sums, held_out_row

    goal, sums = objective.build(config.objective), Sums()
    token_bytes = made.tokenizer.token_bytes().to(model.device)
    for batch in made.val_batches():
        moved: Any = {key: value.to(model.device) for key, value in batch.items()}
        loss = goal(model, moved)
        labels = moved["labels"]
        n_bytes = token_bytes[labels.clamp(min=0)].where(labels >= 0, 0).sum()
        pairs = {"loss": (loss.sum, loss.count), **loss.metrics}
        sums.add({**pairs, "bytes": (n_bytes, torch.ones_like(n_bytes))})
    return {"tokens": sums.totals()["loss"][1], **held_out_row(sums)}
