from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from txlab.data import IGNORE
from txlab.data.chat.rows import pack
from txlab.data.packing import Packed, best_fit, cut
from txlab.data.shards import Shards

PAD = 2
Make = Callable[..., Shards]
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=12)


def documents(lengths: list[int]) -> list[list[int]]:
    """Documents whose tokens are all different."""
    ids = iter(range(10, 1000))
    return [[next(ids) for _ in range(n)] for n in lengths]


def packed(store: Shards, context: int, *, shared: bool = True) -> Packed:
    pieces = cut(store.offsets(), context)
    rows = best_fit(pieces.lengths, context) if shared else None
    return Packed(store, pieces, rows, context=context, pad_id=PAD)


def test_hand_worked_rows(make_store: Make) -> None:
    rows = packed(make_store([[10, 11, 12], [20, 21, 22, 23, 24, 25], [30, 31], [40]]), 4)
    batch = rows.batch([0, 1, 2])
    no = IGNORE
    assert batch["tokens"].tolist() == [[10, 11, 12, 2], [20, 21, 22, 23], [24, 25, 30, 31]]
    assert batch["labels"].tolist() == [[11, 12, no, no], [21, 22, 23, 24], [25, no, 31, no]]
    assert batch["positions"].tolist() == [[0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 0, 1]]
    assert batch["documents"].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 1]]
    assert batch["valid"].tolist() == [[True] * 3 + [False], [True] * 4, [True] * 4]


@pytest.mark.parametrize(
    ("tokens", "rows", "targets"),
    [(0, 0, 0), (1, 0, 0), (2, 1, 1), (8, 1, 7), (9, 1, 8), (10, 2, 9), (19, 3, 18)],
)
def test_rows_of_short_texts(make_store: Make, tokens: int, rows: int, targets: int) -> None:
    """DATA-01: block + 1 tokens are one row, with a label at each of its places."""
    found = packed(make_store(documents([tokens]) if tokens else []), 8)
    assert len(found) == rows
    labels = [int((found[i]["labels"] != IGNORE).sum()) for i in range(rows)]
    assert sum(labels) == targets


@given(LENGTHS, st.integers(1, 12), st.booleans())
def test_every_target_exactly_once(
    make_store: Make, lengths: list[int], context: int, shared: bool
) -> None:
    docs = documents(lengths)
    rows = packed(make_store(docs), context, shared=shared)
    seen: Counter[tuple[int, int]] = Counter()
    tokens = 0
    for i in range(len(rows)):
        row = rows[i]
        pairs = zip(row["tokens"].tolist(), row["labels"].tolist(), strict=True)
        seen.update(pair for pair in pairs if pair[1] != IGNORE)
        tokens += int(row["valid"].sum())
        assert row["labels"][~row["valid"]].eq(IGNORE).all()
        if not shared:
            assert len(row["tokens"]) == rows.lengths()[i] == int(row["valid"].sum())
    assert seen == Counter((a, b) for doc in docs for a, b in pairwise(doc))
    assert tokens == rows.tokens


@given(LENGTHS, st.integers(2, 12))
def test_a_document_is_whole_and_begins_at_0(
    make_store: Make, lengths: list[int], context: int
) -> None:
    docs = documents(lengths)
    rows = packed(make_store(docs), context)
    for i in range(len(rows)):
        row = rows[i]
        for number in row["documents"][row["valid"]].unique().tolist():
            mine = row["documents"] == number
            ids = row["tokens"][mine & row["valid"]].tolist()
            (doc,) = [doc for doc in docs if ids[0] in doc]
            at = doc.index(ids[0])
            assert at % context == 0
            assert ids == doc[at : at + len(ids)]
            assert len(ids) == context or at + len(ids) == len(doc)
            assert row["positions"][mine].tolist() == list(range(int(mine.sum())))


@given(st.lists(st.integers(1, 16), max_size=60))
def test_best_fit(lengths: list[int]) -> None:
    rows = best_fit(np.array(lengths, dtype=np.int64), 16)
    filled = np.bincount(rows, weights=lengths) if lengths else np.zeros(0)
    assert (filled <= 16).all()
    # Each in the fullest row that it fits into, as the slow way finds it.
    room: list[int] = []
    for row, length in zip(rows.tolist(), lengths, strict=True):
        fits = [left for left in room if left >= length]
        if fits:
            assert room[row] == min(fits)
        else:
            assert row == len(room)
            room.append(16)
        room[row] -= length
    chats = pack(enumerate(lengths), 16)
    assert [[i for i, r in enumerate(rows) if r == row] for row in range(len(chats))] == chats


def test_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    rows = best_fit(lengths, 256)
    assert lengths.sum() / (256 * (rows.max() + 1)) > 0.98


def test_rows_and_batches_agree(make_store: Make) -> None:
    for shared in (True, False):
        rows = packed(make_store(documents([5, 9, 3, 7, 4])), 4, shared=shared)
        order = [3, 0, 4, 3, 2]
        batch = rows.batch(order)
        width = batch["tokens"].shape[1]
        for name, tensor in batch.items():
            for mine, i in zip(tensor, order, strict=True):
                assert torch.equal(mine[: len(rows[i][name])], rows[i][name]), name
        assert width == max(rows.lengths()[order])


@pytest.mark.parametrize("index", [-1, 3])
def test_no_row_outside(make_store: Make, index: int) -> None:
    with pytest.raises(IndexError):
        _ = packed(make_store(documents([9, 4])), 4)[index]
