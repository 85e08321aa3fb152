"""Whole numbers as people write them, commas outside of quotes, paths."""

import os
from pathlib import Path
from typing import Any

import pytest

from txlab.core.values import absolute, choices, whole_number


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *(("1e9", "1000000000"), ("10M", "10000000"), ("64k", "64000"), ("2K", "2000")),
        *(("1.5k", "1500"), ("4Ki", "4096"), ("2Mi", "2097152"), ("1B", "1000000000")),
        *(("007", "7"), ("-3", "-3"), ("1_000", "1000"), ("3.0", "3"), ("2.5G", "2500000000")),
        *(("0.5", "0.5"), ("abc", "abc"), ("", ""), ("1e-3", "1e-3"), ("k", "k"), ("1kk", "1kk")),
        *(("null", "null"), ("${seed}", "${seed}"), ("[1,2]", "[1,2]")),
    ],
)
def test_whole_numbers(written: str, read: str):
    assert whole_number(written) == read


def test_choices_split_outside_of_quotes_and_brackets():
    assert choices("a,b") == ["a", "b"]
    assert choices("'a,b',c") == ["'a,b'", "c"]
    assert choices("[1,2],{a:1,b:2},f(x,y)") == ["[1,2]", "{a:1,b:2}", "f(x,y)"]
    assert choices("") == [""]


def test_paths_start_at_home_or_here(monkeypatch: Any, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute("~/x") == str(tmp_path / "x")
    assert absolute("a/../b") == os.path.join(os.getcwd(), "b")
    assert absolute("/x") == "/x"
