"""Files of chats and pairs: bad lines named or counted, formats and other keys told."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.chat.test_forms import said, theirs
from txlab.core.errors import RequestError
from txlab.data import Chat, Pairs
from txlab.data.tokenizer import BPE

GOOD = {"messages": said("u: q", "a: one")}
BAD = [{"text": "x"}, {"messages": [{"role": "gpt", "content": "x"}]}, {"messages": 5}, {}]
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system, please') }}"
    "{% endif %}{{ m.content }}{{ eos_token }}{% endfor %}"
)


def test_formats_may_be_mixed_and_are_counted(make) -> None:
    entries = [
        {**GOOD, "id": 1, "source": "x"},
        {"conversations": theirs("u: r", "a: two"), "id": 2},
        {"prompt": "s", "completion": "three", "system": None},
        {"instruction": "t", "input": None, "output": "four"},
        {"instruction": "u", "output": "five"},
    ]
    made = make(Chat, entries, context=200)
    assert made.facts["formats"] == {
        "messages": 1,
        "conversations": 1,
        "completion": 1,
        "instruction": 2,
    }
    assert made.facts["ignored_keys"] == {"id": 2, "source": 1}
    assert made.notes == ["keys that are left alone: id (2 lines), source (1 lines)"]
    assert sorted(item.answer for item in made.items.train) == sorted(
        ["one", "two", "three", "four", "five"]
    )


def test_bad_lines_are_refused_or_counted(make) -> None:
    entries = [GOOD, *BAD, {"prompt": "p", "completion": "c"}]
    with pytest.raises(RequestError, match=r"items\.jsonl, line 2: no key 'messages' or"):
        make(Chat, entries, context=200)
    made = make(Chat, entries, context=200, on_error="skip")
    assert (made.facts["items"], made.facts["train_items"]) == (6, 2)
    assert made.facts["dropped_unreadable"] == 4
    assert [fault.partition(": ")[0][-6:] for fault in made.facts["faults"]] == [
        "line 2",
        "line 3",
        "line 4",
    ]
    with pytest.raises(RequestError, match="nothing to train on: of 4 items, 4 unreadable"):
        make(Chat, BAD, context=200, on_error="skip")


@pytest.mark.parametrize("trained", [False, True])
def test_chats_that_the_template_refuses(make, tmp_path: Path, trained: bool) -> None:
    (tmp_path / "t.jinja").write_text(NO_SYSTEM)
    refused = {"messages": said("s: s", "u: q", "a: no")}
    fields: dict[str, Any] = {"template": str(tmp_path / "t.jinja"), "context": 200}
    if trained:
        fields["tokenizer"] = BPE.Config(vocab_size=262)
    with pytest.raises(
        RequestError, match=r"items\.jsonl, line 2: the chat template .*: no system"
    ):
        make(Chat, [GOOD, refused], **fields)
    for _ in range(2):  # the second time from the cache
        made = make(Chat, [GOOD, refused, GOOD], on_error="skip", packed=False, **fields)
        assert made.facts["dropped_template_refused"] == 1
        assert (made.facts["items"], made.facts["train_items"]) == (3, 2)
        assert "line 2: the chat template refuses this chat: no system" in made.facts["faults"][0]
        assert len(made.problems("train")) == 2


def test_pairs_skip_too(make) -> None:
    good = {"prompt": "a", "chosen": "b", "rejected": "c", "score_chosen": 3}
    made = make(Pairs, [good, {"prompt": "a"}], on_error="skip")
    assert made.facts["dropped_unreadable"] == 1
    assert made.facts["ignored_keys"] == {"score_chosen": 1}
    assert made.facts["formats"] == {"prompt": 1}


def test_what_is_given_is_not_learned(make) -> None:
    entries = [{"prompt": said("u: q", "a: one", "u: r"), "completion": "two"}]
    text = make(Chat, entries, packed=False, context=200, system="s").preview(1)[0]
    assert "one<|end|>" in text
    assert text[text.index("\u00ab") :].startswith("\u00abtwo<|end|>\u00bb")
    assert text.count("\u00ab") == 1


def test_only_the_last_answer(make) -> None:
    entries = [
        {"messages": said("u: q", "a: one", "u: r", "a: two")},
        {"messages": [*said("u: q", "a: one", "u: r"), {**said("a: two")[0], "weight": 0}]},
    ]
    made = make(Chat, entries, packed=False, context=200, supervise="last")
    assert made.facts["dropped_no_answer_to_learn"] == 1
    assert made.preview(1)[0].count("\u00ab") == 1
    assert "\u00abtwo<|end|>\u00bb" in made.preview(1)[0]
    made = make(Chat, entries, packed=False, context=200)
    shown = sorted(text.count("\u00ab") for text in made.preview(2))
    assert shown == [1, 2]


def test_long_packed_rows_are_noted(make) -> None:
    made = make(Chat, [GOOD], context=2048)
    assert made.notes == [
        "rows of 2,048 tokens, from model.context, each filled with chats; data.packed=false or "
        "model.context=N makes them shorter"
    ]
    assert make(Chat, [GOOD], context=2048, packed=False).notes == []
    assert make(Chat, [GOOD], context=2047).notes == []


def test_identity_of_items_with_messages_that_are_not_learned(make) -> None:
    muted = {"messages": [GOOD["messages"][0], {**GOOD["messages"][1], "weight": 1}]}
    same = make(Chat, [GOOD], context=200).items.sha256
    assert make(Chat, [muted], context=200).items.sha256 == same
    completion = make(Chat, [{"prompt": "q", "completion": "one"}], context=200)
    assert completion.items.sha256 == same
    entry = {"prompt": said("u: q", "a: one", "u: r"), "completion": "two"}
    all_of_it = {"messages": said("u: q", "a: one", "u: r", "a: two")}
    one, two = (make(Chat, [e], context=200).items.sha256 for e in (entry, all_of_it))
    assert one != two
    assert json.dumps(completion.facts)
