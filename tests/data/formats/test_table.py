import re
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.formats import records


def read(tmp_path: Path, raw: bytes, name: str = "a.csv") -> list[str]:
    (tmp_path / name).write_bytes(raw)
    return list(files.documents([tmp_path / name], "text"))


def test_rows_are_documents(tmp_path: Path) -> None:
    raw = b'\xef\xbb\xbfid,text\r\n1,plain\r\n\r\n2,"two\r\nlines, ""quoted"""\r\n3,\r\n4,\xc3\xa9'
    assert read(tmp_path, raw) == ["plain", 'two\r\nlines, "quoted"', "", "é"]
    assert read(tmp_path, b"text\tn\na,b\t1\n", "a.tsv") == ["a,b"]
    assert read(tmp_path, b"") == []
    assert read(tmp_path, b"text\n") == []


def test_a_large_cell(tmp_path: Path) -> None:
    text = "word " * 200_000
    assert read(tmp_path, f'text\n"{text}"\n'.encode()) == [text]


def test_all_fields(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,one\n")
    assert list(files.objects([tmp_path / "a.csv"])) == [
        (f"{tmp_path}/a.csv, line 2, byte 8", {"id": "1", "text": "one"})
    ]


BAD = {
    "a byte": (b'id,text\n1,"a\nb\xe9"\n', "line 3, byte 14: 0xE9 is no UTF-8"),
    "short": (b"id,text\n1,a\n2\n", "line 3, byte 12: 1 cells; expected 2, as in line 1"),
    "long": (b"id,text\n1,a,b\n", "line 2, byte 8: 3 cells; expected 2"),
    "open quote": (b'id,text\n1,"a\n', "line 2, byte 8: unexpected end of data"),
    "quote inside": (b'id,text\n1,"a"b\n', "line 2, byte 8: .*expected a row of the table"),
    "no field": (b"id,body\n1,a\n", r"line 1: no field 'text' .*: id, body\."),
    "twice": (b"text,text\n", "line 1: column 'text' stands there twice"),
    "header": (b"te\xe9t\n", "line 1, byte 2: 0xE9"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_are_named(tmp_path: Path, kind: str) -> None:
    raw, expected = BAD[kind]
    with pytest.raises(RequestError) as caught:
        read(tmp_path, raw)
    assert re.match(rf"{tmp_path}/a\.csv, {expected}", str(caught.value))


def test_rows_after_a_bad_one_are_still_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'text,n\n"a"b,1\nx\n"c\n\xe9",2\nd,3\n')
    good, bad = [], []
    for record in records(tmp_path / "a.csv", "text"):
        try:
            good += record.text("text")
        except RequestError as error:
            bad.append(str(error).partition(": ")[0].rpartition("a.csv, ")[2])
    assert good == ["d"]
    assert bad == ["line 2, byte 7", "line 3, byte 14", "line 5, byte 19"]
