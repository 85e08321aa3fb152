import json
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.data.chat import forms
from txlab.data.chat.messages import Item, split
from txlab.data.chat.reading import OnError, read

USER, BOT = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
SYSTEM = {"role": "system", "content": "s"}


def read_chats(found: list[Path], on_error: OnError = OnError.error) -> list[Item]:
    return read(found, forms.chat, on_error).items


def read_pairs(found: list[Path], on_error: OnError = OnError.error) -> list[Item]:
    return read(found, forms.pair, on_error).items


def write(folder: Path, *entries: object) -> list[Path]:
    file = folder / "x.jsonl"
    file.write_text("\n".join(json.dumps(entry) for entry in ({"messages": [USER, BOT]}, *entries)))
    return [file]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"text": "x"}, "no key 'messages' or .*; there are: text"),
        ([], "JSON array; expected an object"),
        ({"messages": []}, "expected a list of messages"),
        ({"messages": 5}, "expected a list of messages, not 5"),
        ({"messages": ["x"]}, 'message 1 is "x"; expected role and content'),
        ({"messages": [USER, {"role": "assistant"}]}, "message 2: content is missing"),
        ({"messages": [USER, {**BOT, "content": None}]}, "message 2: content is null"),
        ({"messages": [{**USER, "content": [1]}]}, r"message 1: content is \[1\]"),
        ({"messages": [{**USER, "role": "gpt"}]}, "unknown role 'gpt'; there are: system, user"),
        ({"messages": [BOT, USER]}, "message 1 is the assistant's"),
        ({"messages": [SYSTEM, BOT]}, "message 2 is the assistant's"),
        ({"messages": [SYSTEM, SYSTEM, USER]}, "message 2 is the system's"),
        ({"messages": [USER, SYSTEM, BOT]}, "message 2 is the system's"),
        ({"messages": [SYSTEM]}, "no message of a user"),
        ({"messages": [{**USER, "content": "\ud800"}]}, "half of a surrogate pair"),
    ],
)
def test_bad_chats_are_named_with_file_and_line(tmp_path: Path, entry, said: str) -> None:
    with pytest.raises(RequestError, match=rf"x\.jsonl, line 2.*{said}") as error:
        list(read_chats(write(tmp_path, entry)))
    assert "\n" not in str(error.value)


def test_other_keys_are_left_alone(tmp_path: Path) -> None:
    file = write(tmp_path, {"id": 1, "messages": [{**USER, "name": "x"}, BOT, BOT, USER]})
    assert list(read_chats(file))[1].messages == [USER, BOT, BOT, USER]


def test_only_json_lines_hold_chats(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"a\.txt: expected a \.jsonl file"):
        list(read_chats([tmp_path / "a.txt"]))


@pytest.mark.parametrize(
    "entry",
    [
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": [USER], "chosen": "b", "rejected": "c"},
        {"prompt": [USER], "chosen": [BOT], "rejected": [{**BOT, "content": "c"}]},
        {"prompt": "a", "chosen": [USER, BOT], "rejected": "c"},
        {"chosen": [USER, BOT], "rejected": [USER, {**BOT, "content": "c"}]},
    ],
)
def test_forms_of_a_pair(tmp_path: Path, entry) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps(entry))
    (item,) = read_pairs([file])
    assert (item.messages, item.chosen, item.rejected) == ([USER], "b", "c")


def test_equal_lists_leave_their_last_message_as_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"chosen": [USER, BOT], "rejected": [USER, BOT]}))
    (item,) = read_pairs([file])
    assert (item.messages, item.chosen, item.rejected) == ([USER], "b", "b")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"prompt": "a", "chosen": "b"}, "no key 'rejected'"),
        ({"chosen": "b", "rejected": "c"}, "no key 'prompt'"),
        ({"prompt": "a", "chosen": "b", "rejected": 3}, "rejected is 3"),
        ({"prompt": [BOT], "chosen": "b", "rejected": "c"}, "message 1 is the assistant's"),
        ({"prompt": "a", "chosen": [BOT, USER, BOT], "rejected": "c"}, "one message of the assis"),
        ({"prompt": "a", "chosen": [USER], "rejected": "c"}, "there are: none"),
        ({"chosen": [USER, BOT], "rejected": [SYSTEM, USER]}, "one message|no message"),
    ],
)
def test_bad_pairs_are_named_with_file_and_line(tmp_path: Path, entry, said: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n" + json.dumps(entry))
    with pytest.raises(RequestError, match=rf"p\.jsonl, line 2.*({said})"):
        list(read_pairs([file]))


def test_equal_prompts_stay_on_one_side() -> None:
    items = [
        Item(str(n), [{"role": "user", "content": f"q{n // 2}"}, {**BOT, "content": str(n)}])
        for n in range(100)
    ]
    train, val = split(items, 0.2)
    assert (len(train), len(val)) == (80, 20)
    asked = [{item.messages[0]["content"] for item in part} for part in (train, val)]
    assert not asked[0] & asked[1]
    again = split(items[::-1], 0.2)
    assert {item.where for item in again[1]} == {item.where for item in val}
    assert split(items, 0) == (items, [])
    assert split(items[:2], 0.9) == (items[:2], [])
