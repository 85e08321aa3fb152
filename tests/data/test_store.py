import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from txlab.core.errors import RequestError, RunError
from txlab.data import cache
from txlab.data.store import HEADER, MAGIC, Store, StoreWriter

DOCUMENTS = [[0, 5, 6, 1], [0, 7, 1], [0, 1]]


def write(file: Path, documents: list[list[int]] = DOCUMENTS, vocab_size: int = 100) -> Path:
    with StoreWriter(file, vocab_size=vocab_size, tokenizer="aa", source="bb") as writer:
        for ids in documents:
            writer.add(ids[:2])
            writer.add(ids[2:])
            writer.end()
    return file


@pytest.mark.parametrize(("vocab_size", "dtype"), [(100, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_what_is_written_is_read(tmp_path: Path, vocab_size: int, dtype: str) -> None:
    top = vocab_size - 1
    file = write(tmp_path / "a.tokens", [[0, top, 1], [0, 1]], vocab_size)
    store = Store(file, vocab_size=vocab_size, tokenizer="aa", source="bb")
    assert store.tokens.dtype == np.dtype(dtype)
    assert isinstance(store.tokens, np.memmap)
    assert store.tokens.tolist() == [0, top, 1, 0, 1]
    assert store.offsets.dtype == np.int64
    assert store.offsets.tolist() == [0, 3, 5]
    assert (len(store), store.header.documents, store.header.max_id) == (5, 2, top)


def test_an_empty_store(tmp_path: Path) -> None:
    store = Store(write(tmp_path / "a.tokens", []), vocab_size=100)
    assert (len(store), store.offsets.tolist()) == (0, [0])


def header(raw: bytes, **fields: object) -> bytes:
    about = json.loads(raw[len(MAGIC) : HEADER]) | fields
    return (MAGIC + json.dumps(about).encode()).ljust(HEADER) + raw[HEADER:]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda raw: raw[:-8], "has 4144 bytes, its header says 4152"),
    "odd byte": (lambda raw: raw + b"x", "has 4153 bytes"),
    "half a header": (lambda raw: raw[:100], "header is damaged"),
    "nothing": (lambda raw: b"", "no token store"),
    "foreign": (lambda raw: b"PAR1" + raw[4:], "no token store"),
    "other dtype": (lambda raw: header(raw, dtype="<u4"), "bytes, its header says"),
    "swapped bytes": (lambda raw: header(raw, dtype=">u2"), "header is damaged"),
    "unknown field": (lambda raw: header(raw, more=1), "header is damaged"),
    "float count": (lambda raw: header(raw, count=9.0), "header is damaged"),
    "later version": (lambda raw: header(raw, version=9), "version 9, expected 1"),
    "other max id": (lambda raw: header(raw, max_id=9), "not those that were written"),
    "changed token": (
        lambda raw: raw[:HEADER] + b"\x03" + raw[HEADER + 1 :],
        "not those that were written",
    ),
    "offset past the end": (
        lambda raw: raw[:-8] + (99).to_bytes(8, "little"),
        "offsets do not cover its tokens",
    ),
    "sparse": (lambda raw: raw[:HEADER] + bytes(len(raw) - HEADER), "offsets do not cover"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_stores_are_refused_by_name(tmp_path: Path, kind: str) -> None:  # DATA-04
    file = write(tmp_path / "a.tokens")
    change, reason = DAMAGE[kind]
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(RequestError, match=rf"a\.tokens: .*{reason}.*; delete it"):
        Store(file, vocab_size=100)


def test_stores_of_others_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tokens")
    with pytest.raises(RequestError, match="made of tokenizer aa, this run has xx"):
        Store(file, vocab_size=100, tokenizer="xx")
    with pytest.raises(RequestError, match="made of source bb, this run has yy"):
        Store(file, vocab_size=100, source="yy")
    with pytest.raises(RequestError, match="token id 7, the vocabulary has 7"):
        Store(file, vocab_size=7)
    with pytest.raises(RequestError, match=r"b\.tokens: it cannot be read"):
        Store(tmp_path / "b.tokens", vocab_size=7)


@pytest.mark.parametrize("ids", [[0, 100], [-1]])
def test_ids_outside_of_the_vocabulary_are_not_written(tmp_path: Path, ids: list[int]) -> None:
    file = write(tmp_path / "a.tokens")
    before = file.read_bytes()
    with pytest.raises(ValueError, match="vocabulary 100"):
        write(file, [ids])
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*a\.tokens: No space left"):
        write(tmp_path / "a.tokens")
    assert list(tmp_path.iterdir()) == []


def test_empty_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="offsets do not cover"):
        Store(write(tmp_path / "a.tokens", [[0, 1], []]), vocab_size=100)


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    file = tmp_path / "a.tokens"
    threads = [threading.Thread(target=write, args=(file,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == [file]
    assert Store(file, vocab_size=100).tokens.tolist() == [i for ids in DOCUMENTS for i in ids]
