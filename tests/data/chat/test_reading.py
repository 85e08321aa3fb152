"""Files of chats and pairs: bad lines named or counted, formats and other keys told."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

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


LINES = [
    {"instruction": "do", "input": "it", "output": "one", "id": "1"},
    {"instruction": "rest", "input": "", "output": 'two, or "2"', "id": "2"},
]
CHATS = [
    {"messages": said("s: s", "u: q", "a: one"), "score": 1.5},
    {"messages": said("u: r", "a: two"), "score": None},
]


@pytest.mark.parametrize(
    ("ending", "entries"),
    [
        *((ending, LINES) for ending in ("json", "jsonl.gz", "csv", "tsv", "parquet", "arrow")),
        *((ending, CHATS) for ending in ("json", "jsonl.gz", "parquet", "arrow")),
    ],
)
def test_other_kinds_of_files(make, tmp_path: Path, ending: str, entries: Any) -> None:
    file = tmp_path / f"x.{ending}"
    texts = [json.dumps(entry) for entry in entries]
    if ending == "json":
        file.write_text(f"[{', '.join(texts)}]")
    elif ending == "jsonl.gz":
        file.write_bytes(gzip.compress("\n".join(texts).encode()))
    elif ending in ("csv", "tsv"):
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(
                stream, list(entries[0]), delimiter="," if ending == "csv" else "\t"
            )
            writer.writeheader()
            writer.writerows(entries)
    else:
        table = pyarrow.Table.from_pylist(entries)
        if ending == "parquet":
            parquet.write_table(table, file)
        else:
            with pyarrow.ipc.new_file(file, table.schema) as stream:
                stream.write_table(table)
    made = make(Chat, path=str(file), val_fraction=0.0, context=200)
    wanted = make(Chat, entries, context=200)
    assert [item.messages for item in made.items.train] == [
        item.messages for item in wanted.items.train
    ]
    assert made.facts["sha256"] == wanted.facts["sha256"]
    assert made.facts["ignored_keys"] == wanted.facts["ignored_keys"]


def test_a_damaged_file_is_refused_or_counted(make, tmp_path: Path) -> None:
    lines = "".join(json.dumps(GOOD) + "\n" for _ in range(2000))
    whole = gzip.compress(lines.encode(), mtime=0)
    (tmp_path / "x.jsonl.gz").write_bytes(whole[:-9])
    (tmp_path / "y.jsonl").write_text(json.dumps(GOOD) + "\n{\n")
    with pytest.raises(RequestError, match=r"x\.jsonl\.gz"):
        make(Chat, path=str(tmp_path / "*.jsonl*"), val_fraction=0.0, context=200)
    made = make(
        Chat, path=str(tmp_path / "*.jsonl*"), val_fraction=0.0, context=200, on_error="skip"
    )
    assert made.facts["dropped_unreadable_files"] == 1
    assert made.facts["dropped_unreadable"] == 1
    assert len(made.facts["faults"]) == 2
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(RequestError, match=r"a\.txt: expected a \.jsonl file, a table or columns"):
        make(Chat, path=str(tmp_path / "a.txt"), val_fraction=0.0)


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
