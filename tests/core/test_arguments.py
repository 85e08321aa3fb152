"""Arguments of verbs: typed, free text untouched, one line for what is wrong."""

from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.arguments import parse, usage
from txlab.core.errors import RequestError


class Order(str, Enum):
    up = "up"
    down = "down"


@dataclass
class Arguments:
    prompt: str
    """Text to continue."""
    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int | None = None
    chat: bool = False
    stop: list[str] = field(default_factory=list)
    order: Order = Order.up
    file: str | None = None


def test_all_types():
    words = ["prompt=a=b, c", "max_new_tokens=1k", "temperature=.5", "top_k=3", "chat=true"]
    words += ["stop=\n", "stop=a,b", "order=down", "file=null"]
    parsed, rest = parse(Arguments, words)
    assert parsed == Arguments("a=b, c", 1000, 0.5, 3, True, ["\n", "a,b"], Order.down, "null")
    assert rest == []
    assert parse(Arguments, ["prompt=", "top_k=null"])[0] == Arguments("")


@given(st.text())
def test_text_arrives_letter_by_letter(text: str):
    assert parse(Arguments, [f"prompt={text}"])[0].prompt == text


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("max_new_tokens=abc", "max_new_tokens=abc: expected a whole number."),
        ("max_new_tokens=1.5", "max_new_tokens=1.5: expected a whole number."),
        ("temperature=hot", "temperature=hot: expected a number."),
        ("chat=yes", "chat=yes: expected true or false."),
        ("order=left", "order=left: expected one of up, down."),
        ("tempreature=1", "unknown argument tempreature. Did you mean temperature?"),
        ("hello", "cannot read 'hello': expected key=value."),
    ],
)
def test_bad_words_are_refused_in_one_line(word: str, said: str):
    with pytest.raises(RequestError) as error:
        parse(Arguments, ["prompt=x", word])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_argument_is_named_with_its_text():
    with pytest.raises(RequestError, match=r"prompt=... is needed: Text to continue\."):
        parse(Arguments, [])


def test_overrides_are_handed_back_and_misspelt_arguments_are_not():
    words = ["prompt=x", "model.attn=gqa", "+recipe=pretrain", "seed=1"]
    assert parse(Arguments, words, rest=True)[1] == words[1:]
    with pytest.raises(RequestError, match="Did you mean temperature"):
        parse(Arguments, ["prompt=x", "temprature=1"], rest=True)


def test_usage_lists_key_default_and_text():
    assert usage(Arguments)[:2] == [
        ("prompt", "required", "Text to continue."),
        ("max_new_tokens", "64", ""),
    ]
