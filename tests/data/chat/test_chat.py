import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data import IGNORE, Chat
from txlab.data.chat.rows import pack
from txlab.data.tokenizer import BPE, Pretrained, WordPiece
from txlab.testing import tiny

BARE = (
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)


def chat(*contents: str) -> dict[str, list[dict[str, str]]]:
    roles = ["user", "assistant"] * len(contents)
    return {"messages": [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]}


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A template of contents and an end token alone."""
    (tmp_path / "bare.jinja").write_text(BARE)
    return str(tmp_path / "bare.jinja")


def learned(made: Chat) -> list[str]:
    """What each row teaches, control tokens spelled out."""
    names = {i: s.encode() for s, i in made.tokenizer.control.items()}
    return [
        b"".join(
            names.get(i) or made.tokenizer.decode_bytes([i])
            for i in made.train[n]["labels"].tolist()
            if i != IGNORE
        ).decode()
        for n in range(len(made.train))
    ]


def test_labels_are_the_answers_and_their_ends(make) -> None:  # SFT-03
    made = make(Chat, [chat("q", "one", "r", "two")], packed=False)
    assert learned(made) == ["one<|end|>two<|end|>"]
    row = made.train[0]
    kept = row["labels"] != IGNORE
    assert torch.equal(row["labels"][:-1][kept[:-1]], row["tokens"][1:][kept[:-1]])
    assert made.preview(1) == [
        "<|bos|><|start|>user\nq<|end|>\n<|start|>assistant\n\u00abone<|end|>\u00bb\n"
        "<|start|>user\nr<|end|>\n<|start|>assistant\n\u00abtwo<|end|>\u00bb\n"
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_pads_are_told_by_length(make, tmp_path: Path, packed: bool) -> None:  # SFT-01
    """The pad token is the end token: every real one is learned, no pad is."""
    folder = tiny.tokenizer(tmp_path / "hub")
    settings = {"eos_token": "<|end|>", "pad_token": "<|end|>", "bos_token": "<|bos|>"}
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(own | settings))
    tokenizer = Pretrained.load(folder)
    assert tokenizer.pad_id == tokenizer.eos_id == tokenizer.control["<|end|>"]
    entries = [chat("a", "x", "b", "y<|end|>"), chat("c" * 30, "long answer")]
    made = make(Chat, entries, tokenizer=tokenizer, packed=packed, context=200)
    (batch,) = made.step_batches().at(0)
    ends = (batch["labels"] == tokenizer.eos_id).sum()
    assert int(ends) == (3 if not packed else 6)  # packed: one row, drawn twice
    assert not bool((batch["labels"][~batch["valid"]] != IGNORE).any())
    assert bool((batch["tokens"][~batch["valid"]] == tokenizer.eos_id).all())
    assert int(batch["valid"].sum()) == made.facts["train_tokens"] * (1 + packed)


def test_a_cut_chat_keeps_the_mask_of_what_is_left(make) -> None:  # SFT-04
    entry = chat("q", "one", "two", "three")
    whole = make(Chat, [entry], packed=False, context=100).train[0]
    learned = (whole["labels"] != IGNORE).nonzero().flatten().tolist()
    for context in range(learned[0] + 2, len(whole["tokens"])):
        cut = make(Chat, [entry], packed=False, context=context).train[0]
        assert torch.equal(cut["tokens"], whole["tokens"][:context])
        # The last token that is left has nothing to predict.
        assert torch.equal(cut["labels"][:-1], whole["labels"][: context - 1])
        assert int(cut["labels"][-1]) == IGNORE
    with pytest.raises(RequestError, match="1 answer cut away"):
        make(Chat, [entry], packed=False, context=learned[0] + 1)


def test_what_does_not_fit_or_has_no_answer_is_counted(make) -> None:
    entries = [chat("q", "a"), chat("q" * 90, "a"), chat("no answer"), chat("q", "a" * 90)]
    made = make(Chat, entries, context=50)
    assert {k: v for k, v in made.facts.items() if "dropped" in k} == {
        "dropped_answer_cut_away": 1,
        "dropped_no_answer": 1,
    }
    assert (made.facts["items"], made.facts["train_items"]) == (4, 2)
    dropped = make(Chat, entries, context=50, too_long="drop")
    assert dropped.facts["dropped_too_long"] == 2
    with pytest.raises(RequestError, match=r"items\.jsonl, line 2: 113 tokens, model\.context=50"):
        make(Chat, entries, context=50, too_long="refuse")
    with pytest.raises(RequestError, match=r"items\.jsonl, line 3: no answer; data\.unusable=drop"):
        make(Chat, entries, context=50, unusable="refuse")


def test_nothing_to_learn_is_refused_with_counts(make) -> None:
    with pytest.raises(RequestError, match=r"nothing to train on: of 2 items, 2 no answer"):
        make(Chat, [chat("a"), chat("b")])


def test_a_template_without_answers_is_refused_at_its_line(make, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(RequestError, match=r"line 1: the answers cannot be found.*leaves answers"):
        make(Chat, [chat("q", "a")], template=str(tmp_path / "t.jinja"))
    with pytest.raises(RequestError, match=r"data\.template=.*none\.jinja cannot be read"):
        make(Chat, [chat("q", "a")], template=str(tmp_path / "none.jinja"))


def test_the_template_goes_with_the_tokenizer(make, bare: str, tmp_path: Path) -> None:
    made = make(Chat, [chat("q", "a")], template=bare, tokenizer=BPE.Config(vocab_size=261))
    made.tokenizer.save(tmp_path / "tokenizer.json")
    assert BPE.load(tmp_path / "tokenizer.json").template == BARE
    assert learned(made) == ["a<|eos|>"]
    assert made.template.end_ids[0] == made.tokenizer.eos_id


def test_a_system_message_comes_before_chats_that_have_none(make) -> None:
    own = {"messages": [{"role": "system", "content": "mine"}, *chat("q", "a")["messages"]]}
    made = make(Chat, [chat("q", "a"), own], system="yours", packed=False, context=100)
    (batch,) = made.step_batches().at(0)
    texts = [made.tokenizer.decode(row.tolist()) for row in batch["tokens"]]
    # A control token stands between a message and the next one's role, and decodes to nothing.
    assert sorted(text.split("\n")[1] for text in texts) == ["mine", "yours"]


def test_packed_rows_hold_whole_chats(make) -> None:
    entries = [chat("q" * (n % 7), f"answer {n}") for n in range(30)]
    made = make(Chat, entries, context=128)
    assert len(made.train) < 20
    assert sorted("".join(learned(made)).split("<|end|>")) == sorted(
        ["", *(f"answer {n}" for n in range(30))]
    )
    for n in range(len(made.train)):
        row = made.train[n]
        starts = (row["tokens"] == made.tokenizer.bos_id) & row["valid"]
        assert torch.equal(
            row["positions"] == 0, starts | (~row["valid"] & (row["positions"] == 0))
        )
        assert torch.equal(row["documents"][row["valid"]], (starts.cumsum(0) - 1)[row["valid"]])
        assert bool((row["documents"][~row["valid"]] == starts.sum()).all())


@given(st.lists(st.integers(1, 20), max_size=40))
def test_packing_splits_nothing_and_wastes_little(lengths: list[int]) -> None:
    rows = pack(list(enumerate(lengths)), 20)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    used = [sum(lengths[i] for i in row) for row in rows]
    assert all(0 < n <= 20 for n in used)
    assert sum(n <= 10 for n in used) <= 1


def test_held_out_tasks_are_new_and_the_same_for_every_seed(make) -> None:
    fields = {"n_train": 300, "n_val": 60, "tasks": ["sort", "add", "copy", "reverse", "tally"]}
    made, other = (
        make(Chat, tokenizer=BPE.Config(vocab_size=300), seed=s, **fields) for s in (0, 1)
    )
    asked = [[p.messages[-1]["content"] for p in made.problems(part)] for part in ("train", "val")]
    assert (len(asked[0]), len(asked[1])) == (300, 60)
    assert len({*asked[0], *asked[1]}) == 360
    assert [p.messages for p in other.problems("val")] == [p.messages for p in made.problems("val")]
    assert len(made.problems("val", 7)) == 7


def test_problems_are_what_was_trained_on(make) -> None:  # SFT-05, SFT-06
    made = make(Chat, [chat("q", "one", "r", "two "), chat("s", "three")], packed=False)
    rows = [row.tolist() for row in made.step_batches().at(0)[0]["tokens"]]
    for problem in made.problems("train"):
        answer = [*made.tokenizer.encode(problem.answer), made.template.end_ids[0]]
        ids = [*problem.prompt_ids, *answer]
        assert any(row[: len(ids)] == ids for row in rows)
    assert [p.answer for p in made.problems("train")] == ["two ", "three"]


def test_a_second_time_nothing_is_encoded(make, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [chat("q", "a"), chat("r", "b")]
    first = make(Chat, entries)
    monkeypatch.setattr(Chat, "encode", lambda *_: pytest.fail("encoded again"))
    assert make(Chat, entries).facts == first.facts
    assert make(Chat, entries, context=90, packed=False).facts["sha256"] == first.facts["sha256"]


def test_unknown_words_are_counted_and_the_rest_is_learned(make) -> None:  # TOK-01
    words = WordPiece(WordPiece.Config(vocab_size=200))
    words.train(["user assistant what is two and two four ? . " * 3])
    entries = [chat("what is Я and two?", "four."), chat("two?", "Ж four Ж.")]
    for packed in (True, False):
        made = make(Chat, entries, tokenizer=words, packed=packed)
        assert (made.facts["train_unknown"], made.facts["val_unknown"]) == (3, 0)
        shown = " ".join(made.preview())
        assert "is<|unk|>and" in shown
        assert "four." in shown
    assert "train_unknown" not in make(Chat, entries).facts
