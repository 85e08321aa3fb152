"""Exact match: what counts as right, over ranks and calls, and that nothing else notices."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import txlab
from txlab.data.problem import Problem
from txlab.models import answers
from txlab.models.answers import limit, solve
from txlab.run import train
from txlab.train import checkpoint
from txlab.train.callbacks.exact_match import ExactMatch, closing, read_answers
from txlab.train.history import Sums, held_out_row

NAMES = ["a", "b", "c", "d", "e", "f", "g"]
RIGHT = {name: f"right {name}" for name in NAMES}


def problem(name: str, width: int = 3) -> Problem:
    user = {"role": "user", "content": name}
    return Problem([user], [NAMES.index(name)] * width, RIGHT[name], 4)


def stub(said: dict[str, str], reason: str = "end token", calls: list[Any] | None = None) -> Any:
    """A model that says `said`, or else the right thing; it draws a random number as well."""

    def generate_text(model, tokenizer, prompts, sampling, *, end_ids):
        assert sampling.temperature == 0
        assert list(end_ids) == [9]
        torch.rand(())
        names = [NAMES[ids[0]] for ids in prompts]
        if calls is not None:
            calls.append(names)
        return [SimpleNamespace(text=said.get(n, RIGHT[n]), reason=reason) for n in names]

    return generate_text


def asks(names: list[str], *, marked: bool = True) -> Any:
    return SimpleNamespace(
        asked=lambda: [problem(name) for name in names],
        tokenizer=None, end_ids=(9,), marked=marked,
    )  # fmt: skip


def module(step: int = 5) -> Any:
    return SimpleNamespace(
        model=None,
        device=torch.device("cpu"),
        counters=SimpleNamespace(step=step),
        held_out=Sums(["nll"], torch.tensor([6.0, 3.0], dtype=torch.float64)),
    )


def validate(callback: ExactMatch, at: Any, rank: int = 0, world: int = 1) -> dict[str, float]:
    trainer: Any = SimpleNamespace(
        is_global_zero=rank == 0, global_rank=rank, world_size=world, strategy=None
    )
    callback.on_validation_epoch_end(trainer, at)
    return held_out_row(at.held_out)


@pytest.mark.parametrize(
    ("said", "share"),
    [
        ({}, 1.0),
        ({"a": "right b", "g": "right g."}, 5 / 7),
        (dict.fromkeys(NAMES, ""), 0.0),
        ({"b": " right b\n"}, 1.0),
        ({"b": "Right b", "c": "right  c"}, 5 / 7),
    ],
)
def test_the_share_of_right_answers_joins_the_held_out_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], share: float
) -> None:
    monkeypatch.setattr(answers, "generate_text", stub(said))
    row = validate(ExactMatch(tmp_path, asks(NAMES)), module())
    assert row["val/exact_match"] == pytest.approx(share, abs=1e-12)
    assert row["val/loss"] == 2.0


def test_an_answer_without_an_end_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "generate_text", stub({}, reason="length"))
    model: Any = None
    (one,) = solve(model, model, [problem("a")], end_ids=[9], max_new_tokens=4)
    assert (one.text, one.right) == ("right a", False)


@pytest.mark.parametrize("world", [2, 3, 9])
def test_ranks_share_the_items_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int
) -> None:
    """Also where there are fewer items than ranks: every rank adds up the same figures."""
    calls: list[Any] = []
    monkeypatch.setattr(answers, "generate_text", stub({"b": "", "f": ""}, calls=calls))
    modules = [module() for _ in range(world)]
    for rank, at in enumerate(modules):
        validate(ExactMatch(tmp_path, asks(NAMES)), at, rank, world)
    assert [name for names in calls for name in names] == NAMES
    assert {tuple(at.held_out.names) for at in modules} == {("nll", "exact_match")}
    total = torch.stack([at.held_out.values for at in modules]).sum(0)
    assert total[2:].tolist() == [5.0, 7.0]
    assert {entry["step"] for entry in read_answers(tmp_path / "answers.jsonl")} <= {5}


def test_calls_hold_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(answers, "generate_text", stub({"e": "no"}, calls=calls))
    monkeypatch.setattr(answers, "PLACES", 24)
    items = [problem(name, width=20 if name == "d" else 4) for name in NAMES]
    model: Any = None
    found = solve(model, model, items, end_ids=[9], max_new_tokens=4)
    assert calls == [["a", "b", "c"], ["d"], ["e", "f", "g"]]
    assert [one.problem for one in found] == items
    assert [one.right for one in found] == [True] * 4 + [False] + [True] * 2
    assert solve(model, model, [], end_ids=[9], max_new_tokens=4) == []


def test_answers_are_written_cut_on_resume_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "generate_text", stub({"b": "no\nnever"}))
    callback, file = ExactMatch(tmp_path, asks(NAMES)), tmp_path / "answers.jsonl"
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for step in (2, 4):
        validate(callback, module(step))
    assert torch.equal(torch.get_rng_state(), before)
    found = read_answers(file)
    assert [(entry["step"], entry["right"]) for entry in found[:2]] == [(2, True), (2, False)]
    assert found[1] | {"step": 0} == {
        "step": 0, "question": "b", "answer": "no\nnever", "expected": "right b", "right": False,
    }  # fmt: skip
    assert closing(file, 3) == [
        "answers at step 4, more in answers.jsonl:",
        *("  right  a -> right a", "  right  c -> right c"),
        "  wrong  b -> no / never  (right: right b)",
    ]
    with file.open("a") as stream:
        stream.write('{"step": 6, "quest')  # killed there
    first: Any = SimpleNamespace(is_global_zero=True, strategy=None)
    ExactMatch(tmp_path, asks(NAMES), resumed_step=3).setup(first, None, "fit")
    assert {entry["step"] for entry in read_answers(file)} == {2}
    assert len(file.read_text().splitlines()) == 7


def test_unmarked_answers_are_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "generate_text", stub({}))
    row = validate(ExactMatch(tmp_path, asks(["a"], marked=False)), module())
    assert "val/exact_match" not in row
    assert "right" not in read_answers(tmp_path / "answers.jsonl")[0]
    assert closing(tmp_path / "answers.jsonl")[1] == "  a -> right a  (in the data: right a)"


def test_answers_get_as_much_room_as_the_longest_right_one() -> None:
    assert limit([]) == 1
    assert limit([problem("a"), Problem([], [1], "x", 7)]) == 7
    assert limit([Problem([], [1], "x", 5000)]) == answers.LONGEST


# --- whole runs

TINY = [
    *("data=chat", "model.dim=32", "model.n_layers=1", "model.n_heads=2", "model.context=64"),
    *("tokenizer.vocab_size=300", "trainer=cpu", "data.batch_size=2", "data.n_val=7"),
    *("data.n_train=12", "train.sample=null", "train.val_every=2", "model.dropout=0.1"),
]
TIMES = ("tokens_per_s", "mfu")


def go(folder: Path, name: str, *words: str) -> dict[str, Any]:
    places = [f"data.cache_dir={folder / 'cache'}", f"run_dir={folder / name}"]
    return train(txlab.compose([*TINY, *places, *words]))


def test_a_run_reports_it_and_is_otherwise_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = go(tmp_path, "with", "train.steps=3")
    said = capsys.readouterr().out
    without = go(tmp_path, "without", "train.steps=3", "data.n_asked=0")
    assert result["metrics"] == {"exact_match": 0.0}
    assert without["metrics"] == {}
    assert "answers at step 3" in said
    assert "right 0.0 %" in said
    assert "held-out exact match" in said
    one, two = (
        list(csv.DictReader((tmp_path / name / "metrics.csv").read_text().splitlines()))
        for name in ("with", "without")
    )
    assert [row.pop("val/exact_match") for row in one] == ["0.0", "0.0"]
    assert not (tmp_path / "without" / "answers.jsonl").exists()
    for mine, theirs in zip(one, two, strict=True):
        assert {k: v for k, v in mine.items() if k not in TIMES} == {
            k: v for k, v in theirs.items() if k not in TIMES
        }
    weights = [checkpoint.find(tmp_path / name).weights() for name in ("with", "without")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[1])


@pytest.mark.parametrize("more", [[], ["adapter=lora", "adapter.r=16", "optim.lr=0.02"]])
def test_what_is_learned_by_heart_is_answered_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    more: list[str],
) -> None:  # fmt: skip
    """The real path, adapter and end token included: the items it is asked are those it learned."""
    from txlab.commands import evaluate
    from txlab.data import Chat

    monkeypatch.setattr(Chat, "asked", lambda self: self.problems("train"))
    lines = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in [("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier")]
    ]
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [f"data.path={file}", "data.val_fraction=0.25", "data.n_asked=9", "optim.lr=0.01"]
    words += ["train.steps=150", "train.val_every=null", "model.dropout=0", "data.packed=false"]
    result = go(tmp_path, "run", *words, *more)
    assert result["metrics"]["exact_match"] == 1.0
    assert [e["right"] for e in read_answers(tmp_path / "run" / "answers.jsonl")] == [True] * 3
    capsys.readouterr()
    assert evaluate.main([f"ckpt={tmp_path / 'run'}"]) == 0
    assert "val/exact_match      1.0000" in capsys.readouterr().out
