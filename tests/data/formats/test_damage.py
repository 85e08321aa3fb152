"""Whatever a file holds, it is read, refused in one line, or left out and counted."""

import bz2
import gzip
import io
import lzma
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.collection import Collection, OnError, Source

TEXTS = ["one", "two, é", 'three "words"', "x" * 50]


def columns(kind: str) -> bytes:
    table, sink = pa.table({"text": TEXTS, "n": [1, 2, 3, 4]}), io.BytesIO()
    if kind == "parquet":
        parquet.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


LINES = b'{"text": "one"}\n{"text": "two", "n": [1, {"a": null}]}\n{"text": "\\ud83d\\ude00"}\n'
WHOLE = {
    "a.txt": "one\r\ntwo é\n".encode(),
    "a.jsonl": LINES,
    "a.csv": b'text,n\n"one ""x""",1\n"two\nlines",2\nplain,3\n',
    "a.jsonl.gz": gzip.compress(LINES),
    "a.jsonl.bz2": bz2.compress(LINES),
    "a.jsonl.xz": lzma.compress(LINES),
    "a.jsonl.zst": pa.compress(LINES, codec="zstd", asbytes=True),
    "a.parquet": columns("parquet"),
    "a.arrow": columns("stream"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(WHOLE)),
    st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=6), st.integers(0, 6)), max_size=3),
)
def test_damaged_files(folder: Path, name: str, changes: list[tuple[int, bytes, int]]) -> None:
    raw = WHOLE[name]
    for at, new, gone in changes:
        at %= len(raw) + 1
        raw = raw[:at] + new + raw[at + gone :]
    file = folder / name
    file.write_bytes(raw)
    found = refusal = None
    try:
        found = list(files.documents([file], "text"))
    except RequestError as error:
        refusal = str(error)
    made = Collection([Source("a", str(file), [file], "text")], on_error=OnError.skip)
    try:
        texts = list(made.texts())
    except RequestError as error:
        assert re.fullmatch(r"data\.path=.*: no text, .*\.", str(error))  # noqa: PT017
        return
    dropped = made.survey.dropped
    assert (refusal is not None) == bool(dropped["unreadable"] + dropped["unreadable_files"])
    if refusal is not None:
        assert refusal.startswith(str(file))
        assert "\n" not in refusal
    else:
        assert texts == [text for text in found or [] if text.strip()]
