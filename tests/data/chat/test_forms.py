"""Every form a line may have, and what is wrong with those that have none."""

from typing import Any

import pytest

from txlab.core.errors import RequestError
from txlab.data.chat import forms
from txlab.data.chat.forms import Format
from txlab.data.chat.messages import Message


def said(*turns: str) -> list[Message]:
    """`u: text` of the user, `a:` of the assistant, `s:` of the system."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[turn[0]], "content": turn[3:]} for turn in turns]


def theirs(*turns: str) -> list[dict[str, str]]:
    speakers = {"s": "system", "u": "human", "a": "gpt"}
    return [{"from": speakers[turn[0]], "value": turn[3:]} for turn in turns]


PARTS = [{"type": "text", "text": "o"}, {"type": "text", "text": "ne"}]
CHATS: dict[str, tuple[dict[str, Any], Format, list[Message], tuple[int, ...] | None]] = {
    "messages": (
        {"messages": said("u: q", "a: one", "a: two")},
        Format.messages, said("u: q", "a: one", "a: two"), None,
    ),
    "system field": (
        {"system": "s", "messages": said("u: q", "a: one")},
        Format.messages, said("s: s", "u: q", "a: one"), None,
    ),
    "system twice, the same": (
        {"system": "s", "messages": said("s: s", "u: q", "a: one")},
        Format.messages, said("s: s", "u: q", "a: one"), None,
    ),
    "parts of text": (
        {"messages": [*said("u: q"), {"role": "assistant", "content": PARTS}]},
        Format.messages, said("u: q", "a: one"), None,
    ),
    "weights": (
        {"system": "s",
         "messages": [*said("u: q"), {**said("a: one")[0], "weight": 0}, *said("u: r", "a: two")]},
        Format.messages, said("s: s", "u: q", "a: one", "u: r", "a: two"), (4,),
    ),
    "conversations": (
        {"conversations": theirs("s: s", "u: q", "a: one")},
        Format.conversations, said("s: s", "u: q", "a: one"), None,
    ),
    "conversations of roles": (
        {"conversations": said("u: q", "a: one")},
        Format.conversations, said("u: q", "a: one"), None,
    ),
    "messages from someone": (
        {"messages": theirs("u: q", "a: one")},
        Format.messages, said("u: q", "a: one"), None,
    ),
    "prompt and completion": (
        {"prompt": "q", "completion": "one"},
        Format.completion, said("u: q", "a: one"), None,
    ),
    "only the completion is learned": (
        {"system": "s", "prompt": said("u: q", "a: one", "u: r"), "completion": said("a: two")},
        Format.completion, said("s: s", "u: q", "a: one", "u: r", "a: two"), (4,),
    ),
    "one message as completion": (
        {"prompt": "q", "completion": said("a: one")[0]},
        Format.completion, said("u: q", "a: one"), None,
    ),
    "instruction": (
        {"instruction": "do", "output": "one"},
        Format.instruction, said("u: do", "a: one"), None,
    ),
    "instruction with an empty input": (
        {"instruction": "do", "input": "", "output": "one"},
        Format.instruction, said("u: do", "a: one"), None,
    ),
    "instruction with all": (
        {"instruction": "do", "input": "it", "output": "one", "system": "s",
         "history": [["q", "zero"]]},
        Format.instruction, said("s: s", "u: q", "a: zero", "u: do\nit", "a: one"), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("named", [False, True])
def test_forms_of_a_chat(name: str, named: bool) -> None:
    entry, form, messages, learned = CHATS[name]
    item, found, keys = forms.chat({**entry, "id": 1}, "here", form if named else Format.auto)
    assert (list(item.messages), item.learned, found) == (messages, learned, form)
    assert keys >= entry.keys()
    assert "id" not in keys


@pytest.mark.parametrize(
    ("entry", "said_"),
    [
        ({}, "no key 'messages' or 'conversations' or 'prompt' with 'completion' or 'instr.*none"),
        ({"prompt": "q"}, "there are: prompt"),
        ({"prompt": "q", "completion": 5}, "completion is 5; expected text or messages"),
        ({"instruction": ["x"], "output": "y"}, r'instruction is \["x"\]; expected text'),
        ({"instruction": "x", "output": 1}, "output is 1; expected text"),
        ({"instruction": "x", "output": "y", "history": [["a"]]}, r'turn 1 of history is \["a"\]'),
        ({"messages": said("u: q"), "system": 1}, "system is 1; expected text"),
        ({"messages": said("s: a", "u: q"), "system": "b"}, "are not the same"),
        ({"messages": said("u: q"), "conversations": []}, "keys of messages and conversations; ch"),
        ({"conversations": [{"from": "bard", "value": "x"}]}, "unknown role 'bard'.*human"),
        ({"conversations": [{"from": "gpt", "value": "x"}]}, "message 1 is the assistant's"),
        ({"messages": [{**said("u: q")[0], "tool_calls": [{}]}]}, "message 1: tool_calls cannot"),
        ({"messages": [{**said("u: q")[0], "weight": 2}]}, "weight is 2; expected 0 or 1"),
        ({"messages": said("u: q"), "tools": [{}]}, "tools are not supported"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "content is .*; expected a string",
        ),
    ],
)
def test_lines_that_are_no_chat(entry: dict[str, Any], said_: str) -> None:
    with pytest.raises(RequestError, match=f"^here: .*{said_}") as error:
        forms.chat(entry, "here")
    assert "\n" not in str(error.value)


def test_a_named_format_wants_its_keys() -> None:
    entry = {"messages": said("u: q", "a: one"), "prompt": "q", "completion": "x"}
    assert forms.chat(entry, "here", Format.completion).item.messages == said("u: q", "a: x")
    with pytest.raises(RequestError, match=r"no key 'instruction' \(data\.format=instruction\)"):
        forms.chat(entry, "here", Format.instruction)


PAIRS: dict[str, tuple[dict[str, Any], str]] = {
    "texts": ({"prompt": "q", "chosen": "b", "rejected": "c"}, "prompt"),
    "a message each": (
        {"prompt": "q", "chosen": said("a: b")[0], "rejected": said("a: c")[0]},
        "prompt",
    ),
    "question": ({"question": "q", "chosen": "b", "rejected": "c"}, "question"),
    "instruction": ({"instruction": "q", "chosen": "b", "rejected": "c"}, "instruction"),
    "conversations": (
        {
            "conversations": theirs("u: q"),
            "chosen": theirs("a: b")[0],
            "rejected": theirs("a: c")[0],
        },
        "conversations",
    ),
    "implicit": (
        {"chosen": said("u: q", "a: b"), "rejected": said("u: q", "a: c")},
        "implicit prompt",
    ),
    "prompt again, and a chat beside it": (
        {
            "prompt": "q",
            "messages": said("u: q", "a: b"),
            "chosen": said("u: q", "a: b"),
            "rejected": said("u: q", "a: c"),
        },
        "prompt",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("system", [False, True])
def test_forms_of_a_pair(name: str, system: bool) -> None:
    entry, form = PAIRS[name]
    first = {"system": "s"} if system else {}
    item, found, keys = forms.pair({**entry, **first, "chosen_score": 9}, "here")
    assert list(item.messages) == said(*(["s: s"] if system else []), "u: q")
    assert (item.chosen, item.rejected, found) == ("b", "c", form)
    assert "chosen_score" not in keys


@pytest.mark.parametrize(
    ("entry", "asked", "answer"),
    [
        ({"prompt": "q", "answer": "5"}, said("u: q"), "5"),
        ({"question": "q", "answer": 5}, said("u: q"), "5"),
        ({"messages": said("s: s", "u: q"), "answer": 2.5}, said("s: s", "u: q"), "2.5"),
        ({"instruction": "do", "input": "it", "answer": ""}, said("u: do\nit"), ""),
        (
            {"prompt": said("u: q", "a: x", "u: r"), "answer": "5"},
            said("u: q", "a: x", "u: r"),
            "5",
        ),
    ],
)
def test_forms_of_a_prompt(entry: dict[str, Any], asked: list[Message], answer: str) -> None:
    item = forms.question(entry, "here").item
    assert (item.messages, item.chosen, item.rejected) == (asked, answer, None)


@pytest.mark.parametrize(
    ("entry", "said_"),
    [
        ({"prompt": "q"}, "no key 'answer'; there are: prompt"),
        ({"answer": "5"}, "none of prompt, question, instruction, conversations, messages"),
        ({"prompt": "q", "answer": True}, "answer is true; expected a text or a number"),
        ({"prompt": "q", "answer": ["5"]}, r'answer is \["5"\]'),
        ({"messages": said("u: q", "a: 5"), "answer": "5"}, "ends with the assistant's message"),
        ({"prompt": "q", "answer": "5", "images": ["x"]}, "images are not supported"),
    ],
)
def test_lines_that_are_no_prompt(entry: dict[str, Any], said_: str) -> None:
    with pytest.raises(RequestError, match=f"^here: .*{said_}"):
        forms.question(entry, "here")
