"""One step is one gradient: for every objective on every kind of data, however a step is split.

Options come from the registry: one that is new is tried as well, or must be named below.
"""

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from tests.train.tiny_run import Run
from txlab.core.errors import RequestError
from txlab.core.hydra.registry import ready
from txlab.core.slot import SLOTS
from txlab.data.batch import IGNORE
from txlab.models.decoder import Decoder
from txlab.objectives.fitting import check_fits
from txlab.testing.harness import Subject
from txlab.testing.prepared import made
from txlab.train.history import Sums, held_out_pairs, held_out_row
from txlab.train.optim import SGD

ready()
UNREAD = {
    "prompts": "the model makes its own answers: for objectives that generate",
    "mlm": "hidden tokens: for masked-token objectives",
    "images": "pictures: for objectives of the vision families",
    "captions": "pictures: for objectives of the vision families",
}
"""Data that no objective reads yet."""
FEW = ("chat", "pairs", "text", "span_corruption", "copy")
"""Data of which each kind of row is one: the others take longer than they tell, most days."""
SMALL = ("text", "prefix_lm", "fim", "span_corruption")
"""Data with more held-out rows than a test needs."""
PAIRS = [
    (data, objective)
    for data in SLOTS["data"].options
    for objective in SLOTS["objective"].options
    if data not in UNREAD
    and (data == "pairs") == (SLOTS["objective"].options[objective].cls.lines == 2)
]

FEWER = [pytest.param(*pair, marks=() if pair[0] in FEW else pytest.mark.slow) for pair in PAIRS]


def prepared(name: str, folder: Any, **fields: Any) -> Any:
    return made(Subject(SLOTS["data"], SLOTS["data"].options[name]), folder, 0, fields)


def goal_of(name: str, model: Any) -> Any:
    goal: Any = SLOTS["objective"].build(SLOTS["objective"].options[name].config())
    torch.manual_seed(7)
    goal.bind(model)
    return goal


def model_for(data: Any) -> Decoder:
    torch.manual_seed(1)
    config = Decoder.Config(
        dim=16, n_layers=1, n_heads=2, context=data.context, vocab_size=data.tokenizer.vocab_size
    )
    return Decoder(config, config.dims())


class Gradients(Callback):
    def __init__(self) -> None:
        self.steps: list[list[torch.Tensor]] = []

    def on_gradients(self, trainer: Any, module: Any) -> None:
        self.steps.append([p.grad.clone() for p in module.model.parameters() if p.grad is not None])


def same_step(folder: Any, name: str, objective: str, ways: dict[str, Any]) -> None:
    """The same step of each of `ways` has one loss, one gradient and one count of tokens."""
    data = next(iter(ways.values()))[0]
    model, watch = model_for(data), Gradients()
    start = model_for(data)
    with torch.no_grad():  # an objective that compares with the start needs a model elsewhere
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    goal = goal_of(objective, start)
    check_fits(goal, data, objective)
    batches = [micro for _, micro in ways.values()]
    assert len({len(micro) for micro in batches}) > 1
    done = Run(
        folder / "run",
        len(batches),
        make=lambda step: batches[step],
        model=model,
        objective=goal,
        optim=SGD.Config(lr=1e-30, weight_decay=0.0),
        clip=None,
        val=0,
        callbacks=(watch,),
    ).fit()
    first = done.log.rows[0]
    assert first["grad_norm"] > 1e-3
    tokens = first["tokens"]
    for i, (way, row) in enumerate(zip(ways, done.log.rows, strict=True)):
        for key in first:
            if key.startswith("train/"):
                assert row[key] == pytest.approx(first[key], rel=1e-5, abs=1e-6), (way, key)
        assert row["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-5), way
        assert row["tokens"] == tokens * (i + 1), way
        for mine, theirs in zip(watch.steps[i], watch.steps[0], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "objective"), PAIRS)
def test_a_step_is_one_gradient(tmp_path: Any, name: str, objective: str) -> None:
    """GA-01, GA-02: micro-batches of 1, 2 and all rows, and the shares of two ranks together."""
    ways: dict[str, Any] = {}
    for size in (None, 1, 2):
        data = prepared(name, tmp_path, micro_batch_size=size)
        ways[f"rows of {size}"] = data, data.step_batches().at(1)
    ranks = [data.step_batches(rank=rank, world=2).at(1) for rank in (0, 1)]
    ways["two ranks"] = data, ranks[0] + ranks[1]
    same_step(tmp_path, name, objective, ways)


@pytest.mark.parametrize(("name", "objective"), FEWER)
def test_a_step_by_tokens_is_one_gradient(tmp_path: Any, name: str, objective: str) -> None:
    """The same of steps of rows of like length, with a tail that is shared out unevenly."""
    first = prepared(name, tmp_path)
    if first.train.lengths() is None:
        pytest.skip("its rows do not tell their lengths")
    width = first.context * first.train.lines
    whole = prepared(name, tmp_path, batch_tokens=5 * width)
    parts = prepared(name, tmp_path, batch_tokens=5 * width, micro_batch_tokens=2 * width)
    ranks = [parts.step_batches(rank=rank, world=2).at(0) for rank in (0, 1)]
    ways = {
        "whole": (whole, whole.step_batches().at(0)),
        "parts": (parts, parts.step_batches().at(0)),
        "two ranks": (parts, ranks[0] + ranks[1]),
        "four ranks": (
            parts,
            [m for r in range(4) for m in parts.step_batches(rank=r, world=4).at(0)],
        ),
    }
    same_step(tmp_path, name, objective, ways)


@pytest.mark.parametrize(("name", "objective"), FEWER)
def test_held_out_figures_do_not_depend_on_batches_or_ranks(
    tmp_path: Any, name: str, objective: str
) -> None:
    """MET-01: rows that only fill a batch up count nothing."""
    rows, counts = [], []
    for size, world in ((None, 1), (3, 1), (2, 2), (1, 4)):
        few = {"val_fraction": 0.03} if name in SMALL else {}
        data = prepared(name, tmp_path, micro_batch_size=size, batch_size=24, **few)
        model = model_for(data)
        goal, sums, count = goal_of(objective, model_for(data)), Sums(), 0
        with torch.no_grad():
            model.head.weight.mul_(2.0)
            for rank in range(world):
                for batch in data.val_batches(rank=rank, world=world):
                    loss = goal(model, batch)
                    sums.add(held_out_pairs(loss, batch["labels"], None))
                    count += int((batch["labels"] != IGNORE).sum())
        rows.append(held_out_row(sums))
        counts.append(count)
    assert len(set(counts)) == 1
    for row in rows[1:]:
        assert row == pytest.approx(rows[0], rel=1e-5, abs=1e-6)


def test_what_no_objective_reads_is_named(tmp_path: Any) -> None:
    for name in UNREAD:
        data = prepared(name, tmp_path / name)
        for objective in SLOTS["objective"].options:
            goal: Any = SLOTS["objective"].build(SLOTS["objective"].options[objective].config())
            with pytest.raises(RequestError):
                check_fits(goal, data, objective)


def test_the_objectives_see_every_kind_of_data() -> None:
    assert {data for data, _ in PAIRS} | set(UNREAD) == set(SLOTS["data"].options)
    assert {objective for _, objective in PAIRS} == set(SLOTS["objective"].options)
    assert all(SLOTS["objective"].options[o].cls.additive for _, o in PAIRS)
