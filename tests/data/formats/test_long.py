"""Long lines come in parts, and say the same as when they are parsed at once."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.formats import lines, long

TEXT = st.text('a"\\\n é😀\u3042\x00/', max_size=60)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "LONG", 24)
    monkeypatch.setattr(long, "SPAN", 13)


def both(raw: bytes, field: str) -> Iterator[object]:
    """What a line says in parts, and at once."""
    for limit in (24, 1 << 24):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(long, "LONG", limit)
            try:
                yield "".join(lines.Line(raw, Path("a"), 1, 0).text(field))
            except RequestError as error:
                yield str(error)


@given(TEXT, st.text('"é😀', max_size=1), st.booleans(), st.sampled_from(["text", 'a"b', "é", "n"]))
def test_parts_are_the_text(text: str, other: str, ascii_only: bool, field: str) -> None:
    for entry in ({field: text, "n": other}, {"x": {field: other}, field: text}, {"n": [text]}):
        raw = json.dumps(entry, ensure_ascii=ascii_only).encode()
        one, two = both(raw, field)
        assert one == two
        if isinstance(entry.get(field), str):
            assert one == entry[field]
        if (place := long.span(raw, field)) is not None:
            assert "".join(long.parts(raw, *place)) == entry[field]


def test_a_character_of_two_escapes_is_in_one_part() -> None:
    for before in range(20):
        raw = json.dumps("x" * before + "😀" * 9).encode()
        assert "".join(long.parts(raw, 1, len(raw) - 1)) == "x" * before + "😀" * 9


@given(st.binary(max_size=40), st.integers(0, 60))
def test_what_is_wrong_is_said_alike(junk: bytes, at: int) -> None:
    raw = b'{"text": "some words \\ud83d\\ude00 and more of them", "n": 1}'
    one, two = both((raw[:at] + junk + raw[at:]).strip() or b"x", "text")
    assert one == two


@pytest.mark.parametrize("bad", ["\\ud83d and more words", "and a tab \t in it", "\\x41 and more"])
def test_bad_strings_are_refused(bad: str) -> None:
    one, two = both(f'{{"text": "{bad}"}}'.encode(), "text")
    assert one == two
    assert str(one).startswith("a, line 1")


def test_a_record_may_be_read_again() -> None:
    line = lines.Line(json.dumps({"text": "words " * 9}).encode(), Path("a"), 1, 0)
    assert line.again
    assert list(line.text("text")) == list(line.text("text"))
    assert all(len(part) <= 13 for part in line.text("text"))


@pytest.mark.parametrize("letters", ["word \n", "wörd ", "\u3042 ", "😀 "])
def test_memory_for_a_long_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: str
) -> None:
    """Beside the line itself, parts of some MB are held, whatever the letters; never the text."""
    monkeypatch.undo()
    file = tmp_path / "a.jsonl"
    n = 20_000_000 // len(letters.encode())
    file.write_text(json.dumps({"id": 1, "text": letters * n}, ensure_ascii=False) + "\n")
    (record,) = files.records(file, "text")
    tracemalloc.start()
    chars = sum(map(len, record.text("text")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert chars == n * len(letters)
    assert peak < 36_000_000
