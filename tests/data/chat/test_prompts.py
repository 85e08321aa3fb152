"""Prompts: ids up to the answer, no labels, reference answers by the number of an item."""

import pytest
import torch

import txlab
from tests.data.chat.test_forms import said
from txlab.core.errors import RequestError
from txlab.data import IGNORE, Prompts
from txlab.data.chat.tasks import Task
from txlab.data.tokenizer import BPE
from txlab.run import build_objective


def test_rows_are_prompts_without_labels(make) -> None:
    entries = [
        {"prompt": "What is 2 + 2?", "answer": 4, "level": 1},
        {"messages": said("s: brief", "u: a", "a: b", "u: c"), "answer": "d"},
    ]
    made = make(Prompts, entries, context=200)
    assert made.facts["formats"] == {"prompt": 1, "messages": 1}
    assert made.facts["ignored_keys"] == {"level": 1}
    (batch,) = made.step_batches().at(0)
    assert bool((batch["labels"] == IGNORE).all())
    assert "positions" not in batch
    for row, problem in enumerate(made.problems_of(batch)):
        n = int(batch["valid"][row].sum())
        assert batch["valid"][row].tolist() == [i < n for i in range(batch["tokens"].shape[1])]
        assert batch["tokens"][row, :n].tolist() == problem.prompt_ids
        assert problem.prompt_ids == made.template.prompt(problem.messages)
        assert problem.answer == ("4" if "2 + 2" in problem.messages[-1]["content"] else "d")
        assert problem.length == len(made.tokenizer.encode(problem.answer)) + 1
    assert sorted(batch["items"].tolist()) == [0, 1]


def test_items_are_numbered_over_both_parts(make) -> None:
    entries = [{"prompt": f"q{n}", "answer": n} for n in range(20)]
    made = make(Prompts, entries, val_fraction=0.35, batch_size=4)
    seen = {}
    for world in (1, 2, 3):
        found = []
        for rank in range(world):
            for batch in made.val_batches(rank=rank, world=world):
                problems = made.problems_of(batch)
                assert [p is None for p in problems] == [i < 0 for i in batch["items"].tolist()]
                found += [p for p in problems if p is not None]
        assert len(found) == len(made.val) == 7
        seen |= {p.messages[0]["content"]: p.answer for p in found}
    for step in range(4):
        for batch in made.step_batches().at(step):
            seen |= {p.messages[0]["content"]: p.answer for p in made.problems_of(batch)}
    assert seen == {f"q{n}": str(n) for n in range(20)}


def test_what_leaves_no_room_for_an_answer_is_counted(make) -> None:
    entries = [{"prompt": "q", "answer": "x"}, {"prompt": "q" * 90, "answer": "x"},
               {"prompt": "r", "answer": " "}]  # fmt: skip
    n = len(make(Prompts, entries[:1]).train[0]["tokens"])
    made = make(Prompts, entries, context=n + 1)
    counts = {k: v for k, v in made.facts.items() if k.startswith("dropped")}
    assert counts == {"dropped_no_answer": 1, "dropped_prompt_too_long": 1}
    assert make(Prompts, entries, context=n + 1, too_long="drop").facts["dropped_too_long"] == 1
    with pytest.raises(RequestError, match=r"line 2: \d+ tokens, model\.context="):
        make(Prompts, entries, context=n + 1, too_long="refuse")
    with pytest.raises(RequestError, match="1 prompt too long"):
        make(Prompts, entries[:1], context=n)


def test_made_up_prompts(make) -> None:
    fields = {
        "tasks": list(Task),
        "n_train": 180,
        "n_val": 36,
        "tokenizer": BPE.Config(vocab_size=300),
    }
    made = make(Prompts, context=200, **fields)
    assert (made.facts["train_items"], made.facts["val_items"]) == (180, 36)
    assert made.facts["train_supervised"] == 0
    assert made.marked
    assert len(made.asked()) == 36
    asked = [made.problem(n).messages[-1]["content"] for n in range(216)]
    assert len({*asked}) == 216
    again = make(Prompts, context=200, seed=5, **fields)
    assert [again.problem(n) for n in range(216)] == [made.problem(n) for n in range(216)]


def test_objectives_that_learn_from_labels_refuse_them(make) -> None:
    made = make(Prompts, [{"prompt": "q", "answer": "x"}])
    for objective in ("next_token", "dpo"):
        config = txlab.compose(["data=prompts", f"objective={objective}"])
        with pytest.raises(
            RequestError, match=f"objective={objective} learns from labels; data=pr"
        ):
            build_objective(config, made)


def test_rows_one_by_one(make) -> None:
    made = make(Prompts, [{"prompt": "q", "answer": "x"}, {"prompt": "rr", "answer": "y"}])
    row = made.train[1]
    assert row["items"].shape == ()
    assert torch.equal(row["tokens"], made.train.batch([1])["tokens"][0])
    both = made.collate([made.train[0], made.train[0]])
    assert both["items"].tolist() == [0, 0]
