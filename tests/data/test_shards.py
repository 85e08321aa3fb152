"""Stores one behind the other: the same tokens wherever they are cut."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data import shards
from txlab.data.layout import Documents, Packing, laid
from txlab.data.shards import Shards, ShardWriter, entropy, open_shards, shard
from txlab.data.store import HEADER, MAGIC, Header

ABOUT = {"vocab_size": 1000, "tokenizer": "t", "source": "s"}
LENGTHS = st.lists(st.integers(1, 12), max_size=12)


def write(folder: Path, lengths: list[int], *, limit: int, step: int = 5) -> Shards:
    """Documents of these lengths, ids 0, 1, 2 ... handed over in steps; shards of about `limit`."""
    ends = np.cumsum([0, *lengths])[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", limit)
        with ShardWriter(folder, "train", **ABOUT) as writer:
            for begin in range(0, sum(lengths), step):
                mine = ends[(ends > begin) & (ends <= begin + step)] - begin
                stop = min(begin + step, sum(lengths))
                writer.extend(np.arange(begin, stop, dtype=np.uint32), mine)
    return open_shards(folder, "train", n=writer.n, **ABOUT)


def test_a_token_is_counted_in_all_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SPAN", 3)
    found = write(tmp_path, [4, 4, 9, 2], limit=5)
    assert len(found.stores) > 1
    wanted = found.read(0, len(found)).tolist()
    assert [found.count_of(i) for i in range(30)] == [wanted.count(i) for i in range(30)]


@given(LENGTHS, st.integers(1, 60), st.integers(1, 30))
def test_shards_read_like_one(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], limit: int, step: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    found = write(folder, lengths, limit=limit, step=step)
    n, ends = sum(lengths), np.cumsum([0, *lengths])
    assert (found.count, len(found), found.documents) == (n, n, len(lengths))
    assert found.lengths().tolist() == lengths
    assert found.offsets().tolist() == ends.tolist()
    sizes = [len(store) for store in found.stores]
    assert all(size >= limit for size in sizes[:-1])
    assert all(size <= limit + 12 for size in sizes)
    assert len({file.name for file in folder.iterdir()}) == len(sizes)
    for begin in range(0, n + 1, 3):
        for end in (begin, begin + 1, begin + 7, n, n + 5):
            assert found.read(begin, end).tolist() == list(range(begin, min(end, n)))
            starts = [e for e in ends[:-1] if begin <= e < end]
            assert found.starts(begin, end).tolist() == starts


def test_names_and_headers(tmp_path: Path) -> None:
    found = write(tmp_path, [4] * 5, limit=8)
    names = [f"train-0000{i}.tokens" for i in range(3)]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    assert [store.header.place for store in found.stores] == [name[:-7] for name in names]
    assert [len(store) for store in found.stores] == [8, 8, 4]


def test_a_shard_under_another_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [4] * 5, limit=8)
    os.replace(shard(tmp_path, "train", 0), shard(tmp_path, "train", 2))
    with pytest.raises(RequestError, match=r"train-00000\.tokens: it cannot be read"):
        open_shards(tmp_path, "train", n=3, **ABOUT)
    os.replace(shard(tmp_path, "train", 2), shard(tmp_path, "train", 1))
    write(tmp_path / "other", [4] * 5, limit=8)
    os.replace(shard(tmp_path / "other", "train", 1), shard(tmp_path, "train", 0))
    with pytest.raises(RequestError, match=r"train-00000\.tokens: it is train-00001 under another"):
        open_shards(tmp_path, "train", n=3, **ABOUT)


def test_entropy_over_shards_and_sources(tmp_path: Path) -> None:
    one = write(tmp_path / "a", [3, 2, 5], limit=4)
    assert entropy([one]) == pytest.approx(np.log(7))  # ten tokens, three of them nobody's target
    two = write(tmp_path / "b", [40], limit=4)
    counts = np.bincount([1, 2, 4, 6, 7, 8, 9, *range(1, 40)])
    shares = counts[counts > 0] / counts.sum()
    assert entropy([one, two]) == pytest.approx(-(shares * np.log(shares)).sum())
    assert entropy([]) is None


def test_five_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # DATA-04
    """A sparse store of 2.6e9 ids: 64-bit offsets, ids of the very end, nothing read through."""
    n = (5 << 30) // 2
    ends = np.array([0, n - 3, n], dtype="<i8")
    file = shard(tmp_path, "train", 0)
    header = Header("<u2", n, 2, 9, "t", "s", 0, "train-00000")
    with open(file, "wb") as stream:
        stream.write((MAGIC + json.dumps(header.__dict__).encode()).ljust(HEADER))
        stream.seek(HEADER + 2 * (n - 3))
        stream.write(np.array([7, 8, 9], dtype="<u2").tobytes() + ends.tobytes())
    (tmp_path / shards.SEEN).write_text(json.dumps({file.name: shards._state(file)}))
    found = open_shards(tmp_path, "train", n=1, **ABOUT)
    assert found.read(n - 4, n).tolist() == [0, 7, 8, 9]
    assert found.starts(n - 10, n).tolist() == [n - 3]
    assert found.lengths().tolist() == [n - 3, 3]
    # Changed since it was read through: the contents are looked at again.
    looked: list[Path] = []
    monkeypatch.setattr(shards.Store, "_scan", lambda self: looked.append(self.file))
    os.utime(file)
    open_shards(tmp_path, "train", n=1, **ABOUT)
    open_shards(tmp_path, "train", n=1, **ABOUT)
    assert looked == [file]
    with open(file, "r+b") as stream:
        stream.truncate(HEADER + n)
    with pytest.raises(RequestError, match=r"00000\.tokens: it has .* its header says 5368713240"):
        open_shards(tmp_path, "train", n=1, **ABOUT)


def test_small_stores_are_read_through_each_time(tmp_path: Path) -> None:
    write(tmp_path, [4] * 3, limit=100)
    assert not (tmp_path / shards.SEEN).exists()
    file = shard(tmp_path, "train", 0)
    raw, state = bytearray(file.read_bytes()), file.stat()
    raw[HEADER + 4] ^= 1
    file.write_bytes(raw)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(RequestError, match="not those that were written"):
        open_shards(tmp_path, "train", n=1, **ABOUT)


def test_a_shard_that_fails_leaves_whole_ones_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD", 4)

    def fail() -> None:
        with ShardWriter(tmp_path, "train", **ABOUT) as writer:
            for ids in ([1, 2, 3, 4], [5, 6, 7], [1000]):
                writer.extend(np.array(ids), np.array([len(ids)]))

    with pytest.raises(ValueError, match="vocabulary 1000"):
        fail()
    assert [file.name for file in tmp_path.iterdir()] == ["train-00000.tokens"]


@given(LENGTHS.filter(bool), st.integers(1, 30), st.integers(1, 9))
def test_rows_do_not_see_where_shards_end(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], limit: int, context: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    many = write(folder / "many", lengths, limit=limit)
    one = write(folder / "one", lengths, limit=10**9)
    assert len(one.stores) == 1
    for packing in Packing:
        rows = [
            laid(store, packing, Documents.isolated, width=context, pad_id=2)
            for store in (many, one)
        ]
        assert len(rows[0]) == len(rows[1])
        if not len(rows[0]):
            continue
        batches = [made.batch(range(len(made))) for made in rows]
        assert all(torch.equal(batches[0][name], batches[1][name]) for name in batches[1])
