from pathlib import Path

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.data import IGNORE, Pairs
from txlab.data.tokenizer import BPE, Pretrained
from txlab.testing import tiny

BARE = (
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)


def pair(prompt: int, chosen: int, rejected: int) -> dict[str, str]:
    """Texts whose sides have these lengths in bytewise tokens, the end token counted."""
    return {"prompt": "p" * prompt, "chosen": "c" * (chosen - 1), "rejected": "r" * (rejected - 1)}


@pytest.fixture
def made(make, tmp_path: Path):
    (tmp_path / "bare.jinja").write_text(BARE)

    def prepared(*entries: dict[str, str], **fields):
        return make(Pairs, entries, **{"template": str(tmp_path / "bare.jinja"), **fields})

    return prepared


def test_lengths_of_both_sides(made) -> None:  # DPO-04
    data = made(pair(10, 4, 30), pair(20, 4, 4), context=16)
    assert data.facts["train_items"] == 1
    assert data.facts["dropped_prompt_too_long"] == 1
    batch = data.train[0]
    assert batch["tokens"].shape == (2, 16)
    chosen, rejected = batch["tokens"]
    assert torch.equal(chosen[:10], rejected[:10])
    text = data.tokenizer.decode
    assert (text(chosen[:10].tolist()), text(chosen[10:14].tolist())) == ("p" * 10, "ccc")
    assert int(chosen[13]) == data.tokenizer.eos_id
    assert batch["valid"].sum(1).tolist() == [14, 16]
    assert (batch["labels"] != IGNORE).sum(1).tolist() == [4, 6]
    assert (batch["labels"] != IGNORE)[:, :9].sum() == 0
    kept = batch["labels"][:, :-1] != IGNORE
    assert torch.equal(batch["labels"][:, :-1][kept], batch["tokens"][:, 1:][kept])
    dropped = made(pair(10, 4, 30), pair(5, 5, 6), context=16, too_long="drop")
    assert (dropped.facts["dropped_too_long"], dropped.facts["train_items"]) == (1, 1)
    with pytest.raises(RequestError, match=r"line 1: 40 tokens, model\.context=16"):
        made(pair(10, 4, 30), context=16, too_long="refuse")


def test_unusable_pairs_are_counted_or_refused(made) -> None:  # DPO-04
    good = pair(3, 3, 4)
    empty, blank = {**good, "chosen": ""}, {**good, "rejected": " \n"}
    equal = {**good, "rejected": good["chosen"]}
    late = {**good, "chosen": "c" * 60 + "x", "rejected": "c" * 60 + "y"}
    data = made(good, empty, blank, equal, late, context=32)
    counts = {k: v for k, v in data.facts.items() if k.startswith("dropped")}
    assert counts == {
        "dropped_empty_side": 2,
        "dropped_equal_sides": 1,
        "dropped_equal_after_cut": 1,
    }
    for bad, said in ((empty, "empty side"), (equal, "equal sides")):
        with pytest.raises(RequestError, match=rf"items\.jsonl, line 2: {said}"):
            made(good, bad, unusable="refuse")
    with pytest.raises(RequestError, match="nothing to train on: of 2 items, 1 empty side, 1 equ"):
        made(empty, equal)


def test_batches_hold_whole_pairs(made) -> None:
    data = made(*(pair(3, 2 + n, 14 - n) for n in range(12)), batch_size=4, micro_batch_size=2)
    step = data.step_batches().at(0)
    assert [len(batch["tokens"]) for batch in step] == [4, 4]
    ranks = [data.step_batches(rank=r, world=2).at(0) for r in (0, 1)]
    assert [len(batch["tokens"]) for batches in ranks for batch in batches] == [4, 4]
    for batch in step:
        for row in range(0, 4, 2):
            chosen, rejected = (
                data.tokenizer.decode(t.tolist()) for t in batch["tokens"][row : row + 2]
            )
            assert set(chosen) == {"p", "c"}
            assert set(rejected) == {"p", "r"}


def test_filler_of_validation_counts_no_pair(made) -> None:
    data = made(*({**pair(3, 2 + n, 14), "prompt": f"p{n}"} for n in range(8)), val_fraction=0.4)
    n = len(data.val)
    assert n == 3
    for world in (1, 2):
        found = 0
        for rank in range(world):
            for batch in data.val_batches(rank=rank, world=world):
                has = (batch["labels"] != IGNORE).any(1).view(-1, 2)
                assert torch.equal(has[:, 0], has[:, 1])
                found += int(has[:, 0].sum())
        assert found == n


def test_earlier_answers_belong_to_the_prompt(make) -> None:
    prompt = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "b"},
    ]
    data = make(Pairs, [{"prompt": prompt, "chosen": "yes", "rejected": "no"}])
    assert data.preview(2) == [
        "<|bos|><|start|>user\na<|end|>\n<|start|>assistant\nfirst<|end|>\n<|start|>user\nb<|end|>\n"
        f"<|start|>assistant\n\u00ab{answer}<|end|>\u00bb{pads}"
        for answer, pads in (("yes", ""), ("no", "<1 x padding>"))
    ]
    (problem,) = data.problems("train")
    assert problem.answer == "yes"
    assert data.train[0]["tokens"][0, : len(problem.prompt_ids)].tolist() == problem.prompt_ids


def test_one_bos_where_template_and_tokenizer_both_have_it(make, tmp_path: Path) -> None:  # SFT-05
    tokenizer = Pretrained.load(tiny.tokenizer(tmp_path / "hub"))
    data = make(Pairs, [pair(3, 4, 5)], tokenizer=tokenizer)
    tokens = data.train[0]["tokens"]
    assert (tokens == tokenizer.bos_id).sum(1).tolist() == [1, 1]
    assert tokens[:, 0].tolist() == [tokenizer.bos_id] * 2
    (problem,) = data.problems("train")
    assert tokens[0, : len(problem.prompt_ids)].tolist() == problem.prompt_ids


def test_tasks_give_right_and_plausible_wrong_answers(make) -> None:
    data = make(Pairs, tokenizer=BPE.Config(vocab_size=300), n_train=90, n_val=30)
    assert (data.facts["train_items"], data.facts["val_items"]) == (90, 30)
    assert len({item.messages[0]["content"] for item in data.items.train + data.items.val}) == 120
