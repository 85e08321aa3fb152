"""Measure a trained model on what is held out: loss, perplexity, bits per byte, right answers.

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
    from txlab.objectives import Objective


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
    from txlab.loading import folder_of, load, load_start, move, saved_config
    from txlab.nn.adapter import adapter_of
    from txlab.objectives import objective

    arguments, rest = parse(Arguments, words, rest=True)
    checkpoint = folder_of(Path(arguments.ckpt).expanduser())
    config = amend(saved_config(checkpoint), prepare(rest), ("data", "objective"), "the model")
    goal = objective.build(config.objective)
    model = load(checkpoint, merge=not goal.needs_start)
    if goal.needs_start:
        goal.bind(model if adapter_of(model) is not None else load_start(checkpoint))
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise RequestError(f"{checkpoint} holds no tokenizer, so its model cannot read a text.")
    made = data.build(
        config.data,
        tokenizer,
        context=config.model.context,
        seed=config.seed,
    )
    made.prepare()
    if len(made.val) == 0:
        raise RequestError("nothing is held out: give data.val_fraction above 0.")
    if made.val.lines != goal.lines:
        raise RequestError(
            f"objective={config.objective.name} is not for the rows of data={config.data.name}."
        )
    move(model, arguments.device)
    goal.to(arguments.device)
    for key, value in measure(goal, model, made).items():
        print(f"{key:20s} {value:,.4f}")
    return 0


@torch.inference_mode()
def measure(goal: "Objective", model: "Model", made: "Data") -> dict[str, Any]:
    """Figures over the whole held-out part, weighted by what the objective counts."""
    from txlab.train.history import Sums, held_out_pairs, held_out_row

    sums = Sums()
    token_bytes = made.tokenizer.token_bytes().to(model.device)
    for source, batches in made.val_loaders().items():
        for batch in batches:
            held: dict[str, Any] = dict(batch)
            moved: Any = {key: value.to(model.device) for key, value in held.items()}
            loss = goal(model, moved)
            sums.add(held_out_pairs(loss, moved["labels"], token_bytes, source))
    figures = {f"{goal.item}s": sums.totals()["loss"][1], **held_out_row(sums)}
    return figures | exact_match(model, made)


def exact_match(model: "Model", made: "Data") -> dict[str, float]:
    """Share of the items that `made` asks that are answered right, where it marks the answers."""
    from txlab.models.answers import limit, solve

    problems = made.asked() if made.marked else []
    if not problems:
        return {}
    answers = solve(
        model, made.tokenizer, problems, end_ids=made.end_ids, max_new_tokens=limit(problems)
    )
    right = sum(answer.right for answer in answers)
    return {"problems": len(problems), "val/exact_match": right / len(problems)}
