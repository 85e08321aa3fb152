"""Files that end in .json: a list of objects, or JSON lines after all."""

import json
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.formats import records

ENTRIES = [{"text": "one"}, {"text": "zwei é"}, {"text": "]"}]


def write(folder: Path, text: str | bytes) -> Path:
    file = folder / "x.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \n"])
def test_a_list_of_objects(tmp_path: Path, indent: int | None, before: bytes) -> None:
    file = write(tmp_path, before + json.dumps(ENTRIES, indent=indent).encode() + b"\n")
    assert [record.entry() for record in records(file, None)] == ENTRIES
    assert list(files.documents([file], "text")) == ["one", "zwei é", "]"]
    assert files.find(str(file)) == [file]


def test_lines_after_all(tmp_path: Path) -> None:
    file = write(tmp_path, "".join(json.dumps(entry) + "\n" for entry in ENTRIES))
    assert [record.entry() for record in records(file, None)] == ENTRIES


def test_an_empty_list_has_none(tmp_path: Path) -> None:
    assert list(records(write(tmp_path, " [ ] \n"), None)) == []
    assert list(records(write(tmp_path, ""), None)) == []


def test_places_are_lines(tmp_path: Path) -> None:
    file = write(tmp_path, '[{"text": "a"},\n\n 5,\n{"text": 1}, {"text": "\\ud800"}]')
    _, number, wrong, half = records(file, None)
    with pytest.raises(RequestError, match=r"x\.json, line 3: this is a JSON number; expected a "):
        number.entry()
    with pytest.raises(RequestError, match=r"x\.json, line 4: field 'text' holds number"):
        list(wrong.text("text"))
    with pytest.raises(RequestError, match=r"line 4: it holds half of a surrogate pair"):
        half.entry()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"a": 1}', "line 1, byte 9: no ',' or ']' after an element"),
        ('[{"é": 1},\n {"a": }]', r"line 2, byte 19: Expecting value"),
        ('[{"a": 1} {"a": 2}]', "byte 10: no ','"),
        ('[{"a": 1}] {}', "byte 11: text after the list"),
        ("[" * 100_000, "recursion"),
        (b'[{"a": "\xe9"}]', "byte 8: 0xE9 is no UTF-8"),
    ],
)
def test_what_is_no_list(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(RequestError, match=rf"x\.json.*{said}") as error:
        list(records(write(tmp_path, text), None))
    assert "\n" not in str(error.value)


def test_folders_leave_it_alone(tmp_path: Path) -> None:
    """Settings end in .json as well."""
    write(tmp_path, "{}")
    (tmp_path / "a.txt").write_text("a")
    assert files.find(str(tmp_path)) == [tmp_path / "a.txt"]
    assert files.find(str(tmp_path / "*.json")) == [tmp_path / "x.json"]
