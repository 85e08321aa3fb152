"""Free text and paths reach the config letter by letter."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlab.core.hydra import compose
from txlab.core.hydra.text import is_quoted

TEXTS = [
    *("Once upon a time, there was", "It's 5", "C#", "</s>", "f(x)", "~/x", "Hello!", "1e3"),
    *(
        "日本語のテスト",
        "${seed}",
        "\\${x}",
        "007",
        "true",
        "no",
        "[1, 2",
        "{a: b}",
        "a=b",
        "",
        " ",
    ),
    *('say "hi"', "tail\\", "two\nlines", "\t", "null and void", "$", "@", "%", "a:b", "🙂"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str):
    assert compose([f"train.sample={text}"]).train.sample == text


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text(text: str):
    expected = None if text == "null" else text
    if is_quoted(text):
        return  # a whole value in quotes is Hydra's own quoting
    assert compose([f"train.sample={text}"]).train.sample == expected


@pytest.mark.parametrize(
    "name", ["a,b.txt", "a#b", "a b", "it's", "1e3", "step=3", "日本", "(x)", "007"]
)
def test_paths(name: str):
    assert compose([f"data.path={name}"]).data.path == os.path.abspath(name)  # type: ignore[attr-defined]


def test_a_value_in_quotes_is_hydras_own_quoting():
    assert compose(["train.sample='a, b'"]).train.sample == "a, b"
    assert compose(['train.sample="a, b"']).train.sample == "a, b"
    assert compose(["train.sample='a' and 'b'"]).train.sample == "'a' and 'b'"


def test_null_is_no_text():
    assert compose(["train.sample=null"]).train.sample is None


def test_paths_may_refer_to_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEXTS", "/texts and more")
    assert compose(["data.path=${oc.env:TEXTS}/a"]).data.path == "/texts and more/a"  # type: ignore[attr-defined]
