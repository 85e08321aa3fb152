import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.data import files


def read(tmp_path: Path, name: str, raw: bytes, field: str = "text") -> list[str]:
    (tmp_path / name).write_bytes(raw)
    return list(files.documents([tmp_path / name], field))


def refused(tmp_path: Path, name: str, raw: bytes, field: str = "text") -> str:
    with pytest.raises(RequestError) as caught:
        read(tmp_path, name, raw, field)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / name}, line ")
    assert "\n" not in text
    return text.removeprefix(f"{tmp_path / name}, ")


@pytest.mark.parametrize("name", ["a.txt", "a.md", "A.TXT"])
def test_a_text_file_is_one_document(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, name, b"\xef\xbb\xbfone\r\n\r\ntwo\rthree\n") == ["one\n\ntwo\nthree\n"]
    assert read(tmp_path, name, b"in\xef\xbb\xbfside\x00") == ["in\ufeffside\x00"]
    assert read(tmp_path, name, b"") == [""]


def test_jsonl_lines_are_documents(tmp_path: Path) -> None:
    """DATA-03: BOM, CRLF and blank lines do not pollute the text; the string itself stays."""
    raw = b'\xef\xbb\xbf{"text": "a\\r\\nb"}\r\n\r\n  \n {"text": "\\u00e9", "n": 1} \n{"text": ""}'
    assert read(tmp_path, "a.jsonl", raw) == ["a\r\nb", "é", ""]


def test_a_long_line(tmp_path: Path) -> None:
    text = "word " * 4_000_000  # 20 MB
    assert read(tmp_path, "a.jsonl", json.dumps({"text": text}).encode()) == [text]


BAD = {
    "a byte": (b'{"text": "a"}\n{"text": "caf\xe9"}\n', "line 2, byte 27: 0xE9 is no UTF-8"),
    "no json": (b'{"text": "a"}\n\n{"text": x}\n', "line 3, byte 24: Expecting value"),
    "cut": (b'{"text": "\xc3\xa9', "line 1, byte 9: Unterminated string"),
    "a list": (b'["text"]', "line 1, byte 0: this is a JSON array; expected an object with 'text'"),
    "a number": (b"\n5", "line 2, byte 1: this is a JSON number"),
    "no field": (b' {"body": "a", "id": 3}', "byte 1: no field 'text' .*: body, id."),
    "no string": (b'{"text": null}', "byte 0: field 'text' holds null; expected a string"),
    "surrogate": (b'{"text": "ab\\ud800"}', r"character 2 of 'text' is \\ud800"),
    "two objects": (b'{"text": "a"}{"text": "b"}', "line 1, byte 13: Extra data"),
    "after a BOM": (b"\xef\xbb\xbf{]", "line 1, byte 4: Expecting property name"),
    "deep": (b"[" * 200_000, "line 1, byte 0: .*expected one JSON object a line"),
    "huge number": (b'{"text": ' + b"9" * 5000 + b"}", "line 1, byte 0: Exceeds the limit"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_lines_are_named(tmp_path: Path, kind: str) -> None:
    raw, expected = BAD[kind]
    assert re.match(f".*{expected}", refused(tmp_path, "a.jsonl", raw))


def test_bad_bytes_of_text_files_are_named(tmp_path: Path) -> None:
    assert refused(tmp_path, "a.txt", b"one\ntwo \xe9\n").startswith("line 2, byte 8: 0xE9 is no")
    assert "looks like UTF-16" in refused(tmp_path, "a.txt", "text".encode("utf-16"))
    assert refused(tmp_path, "a.md", b"\xef\xbb\xbf\n\xff").startswith("line 2, byte 4: 0xFF")


def test_other_fields(tmp_path: Path) -> None:
    assert read(tmp_path, "a.jsonl", b'{"body": "x"}', field="body") == ["x"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.md", "c.jsonl", "d.pdf", ".hidden.txt", "sub/e.TXT", ".git/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path


def names(tree: Path, path: str) -> list[str]:
    return [f.relative_to(tree).as_posix() for f in files.find(str(tree / path))]


def test_folders_files_and_patterns(tree: Path) -> None:
    assert names(tree, "") == ["a.md", "b.txt", "c.jsonl", "sub/e.TXT"]
    assert names(tree, "b.txt") == ["b.txt"]
    assert names(tree, "*.txt") == ["b.txt"]
    assert names(tree, "*") == ["a.md", "b.txt", "c.jsonl"]
    assert names(tree, "**/*.[tT]*") == ["b.txt", "sub/e.TXT"]
    (tree / "x[1].txt").write_text("a name with pattern characters")
    assert names(tree, "x[1].txt") == ["x[1].txt"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere.txt", "there is no such file"),
        ("d.pdf", r"expected a file ending in \.txt, \.md, \.jsonl"),
        ("*.pdf", "of 1 matches none is"),
        ("*.zip", "of 0 matches none is"),
        (".git/nothing", "there is no such file"),
    ],
)
def test_paths_without_text_are_refused(tree: Path, path: str, reason: str) -> None:
    with pytest.raises(RequestError, match=rf"data\.path=.*{reason}"):
        files.find(str(tree / path))


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"the folder holds no \.txt"):
        files.find(str(tmp_path))


@pytest.mark.parametrize("how", ["gone", "folder", "forbidden"])
def test_unreadable_files_are_named(tmp_path: Path, how: str) -> None:
    file = tmp_path / "a.txt"
    if how == "gone":
        file.symlink_to(tmp_path / "nowhere")
    elif how == "folder":
        file.mkdir()
    else:
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        file.write_text("x")
        file.chmod(0)
    for read in (lambda: files.digest([file]), lambda: list(files.documents([file], "text"))):
        with pytest.raises(RequestError, match=r"cannot read .*a\.txt: .*; check the path"):
            read()


def test_the_digest_is_of_the_contents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("one")
    one, two = (files.digest([tmp_path / n]) for n in ("a.txt", "b.txt"))
    assert one == two == hashlib.sha256(b"one").hexdigest()
    assert files.digest([tmp_path / "a.txt", tmp_path / "b.txt"]) not in (one, two)
    (tmp_path / "b.txt").write_text("two")
    assert files.digest([tmp_path / "b.txt"]) != one


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    for path in (tmp_path, tmp_path / "a.txt", tmp_path / "*.txt"):
        with pytest.raises(RequestError, match=r"a\.txt is no regular file"):
            files.find(str(path))
