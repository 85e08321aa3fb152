from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.formats import columns, records

TEXTS = [f"text {i} é" for i in range(150)]


def write(file: Path, table: pa.Table, kind: str) -> Path:
    if kind == "parquet":
        parquet.write_table(table, file, row_group_size=70)
    else:
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with pa.OSFile(str(file), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=90)
    return file


TYPES = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
KINDS = {"parquet": "a.parquet", "stream": "a.arrow", "file": "b.arrow"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_rows_are_documents(tmp_path: Path, kind: str, type_: Any) -> None:
    table = pa.table({"n": range(150), "text": pa.array(TEXTS).cast(type_)})
    file = write(tmp_path / KINDS[kind], table, kind)
    assert list(files.documents([file], "text")) == TEXTS


@pytest.mark.parametrize("kind", KINDS)
def test_all_fields(tmp_path: Path, kind: str) -> None:
    table = pa.table({"n": [1, 2], "tags": [["a"], []]})
    file = write(tmp_path / KINDS[kind], table, kind)
    assert list(files.objects([file])) == [
        (f"{file}, row 1", {"n": 1, "tags": ["a"]}),
        (f"{file}, row 2", {"n": 2, "tags": []}),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_text_is_named(tmp_path: Path, kind: str) -> None:
    def refusal(**fields: Any) -> str:
        file = write(tmp_path / KINDS[kind], pa.table(fields), kind)
        with pytest.raises(RequestError) as caught:
            list(files.documents([file], "text"))
        return str(caught.value).removeprefix(f"{file}")

    assert refusal(text=[None, "a"]).startswith(
        ", row 1: field 'text' holds null; expected a string"
    )
    assert refusal(text=[1]) == ": field 'text' holds int64; expected strings."
    assert refusal(body=["a"]).startswith(": no field 'text' (data.field=NAME chooses); there are:")
    bad = pa.StringArray.from_buffers(
        2, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), pa.py_buffer(b"a\xe9")
    )
    assert refusal(text=bad).startswith(", row 2, byte 0 of 'text': it is no UTF-8")


def test_other_rows_of_a_bad_one_are_still_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"text": ["a", None, "b"]}), "parquet")
    good = []
    for record in records(file, "text"):
        try:
            good += record.text("text")
        except RequestError:
            good.append("?")
    assert good == ["a", "?", "b"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["cut", "foreign", "empty"])
def test_damaged_files_are_refused_by_name(tmp_path: Path, kind: str, how: str) -> None:
    file = write(tmp_path / KINDS[kind], pa.table({"text": TEXTS}), kind)
    raw = file.read_bytes()
    file.write_bytes({"cut": raw[: len(raw) * 2 // 3], "foreign": b"x" * 500, "empty": b""}[how])
    with pytest.raises(RequestError, match=rf"{file.name}: no whole {file.suffix} file \("):
        list(files.documents([file], "text"))


def test_missing_files_are_named(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.arrow"):
        with pytest.raises(RequestError, match=rf"cannot read .*{name}: No such file"):
            list(records(tmp_path / name, "text"))


def test_few_rows_are_held_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"text": TEXTS}), "parquet")
    sizes = {record._batch.num_rows for record in columns.records(file, ".parquet", "text")}
    assert max(sizes) <= columns.ROWS
