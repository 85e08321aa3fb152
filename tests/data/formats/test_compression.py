import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.data import files


def zstandard(raw: bytes) -> bytes:
    import pyarrow

    return pyarrow.compress(raw, codec="zstd", asbytes=True)


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard,
}
LINES = b'\xef\xbb\xbf{"text": "one"}\r\n\n{"text": "t\xc3\xa9w"}\n'


def read(file: Path, raw: bytes) -> list[str]:
    file.write_bytes(raw)
    return list(files.documents([file], "text"))


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_are_read_like_others(tmp_path: Path, suffix: str) -> None:
    pack = PACK[suffix]
    assert read(tmp_path / f"a.jsonl{suffix}", pack(LINES)) == ["one", "téw"]
    assert read(tmp_path / f"a.TXT{suffix}", pack(b"one\r\ntwo")) == ["one\ntwo"]
    assert read(tmp_path / f"a.csv{suffix}", pack(b"text\none\n")) == ["one"]
    # Several streams one after another are one file, as `cat` makes them.
    assert read(tmp_path / f"b.txt{suffix}", pack(b"one ") + pack(b"two")) == ["one two"]


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("how", ["cut", "foreign", "changed"])
def test_damaged_ones_are_refused_by_name(tmp_path: Path, suffix: str, how: str) -> None:
    raw = PACK[suffix](bytes(range(256)) * 400)
    bad = {
        "cut": raw[: len(raw) // 2],
        "foreign": b"no such thing" * 9,
        "changed": raw[: len(raw) // 2] + b"\xff\x00\xff\x00" + raw[len(raw) // 2 + 4 :],
    }[how]
    with pytest.raises(RequestError, match=rf"a\.txt\{suffix}[:,] .*(damaged or cut|no UTF-8)"):
        read(tmp_path / f"a.txt{suffix}", bad)


def test_bad_lines_inside_are_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"a\.jsonl\.gz, line 2, byte 16: Expecting value"):
        read(tmp_path / "a.jsonl.gz", gzip.compress(b'{"text": "one"}\n?'))


def test_which_names_are_read() -> None:
    kinds = {
        "a.txt.gz": ".txt", "a.b.jsonl.ZST": ".jsonl", "a.parquet": ".parquet", "a.arrow": ".arrow",
        "a.tsv": ".tsv", "a.gz": None, "a.parquet.gz": None, "a": None, ".txt": None,
        "a.txt.zip": None,
    }  # fmt: skip
    assert {name: files.kind(Path(name)) for name in kinds} == kinds
