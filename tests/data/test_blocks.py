from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from txlab.data import IGNORE
from txlab.data.blocks import Blocks
from txlab.data.shards import Shards

PAD, EOS = 2, 1
Make = Callable[..., Shards]


def documents(*lengths: int) -> list[list[int]]:
    """Documents 0 ... 1 whose tokens between are all different."""
    ids = iter(range(10, 1000))
    return [[0, *(next(ids) for _ in range(n - 2)), EOS][:n] for n in lengths]


def test_hand_worked_rows(make_store: Make) -> None:
    blocks = Blocks(make_store([[0, 10, 11, 1], [0, 12, 1]]), context=4, pad_id=PAD)
    batch = blocks.batch([0, 1])
    no = IGNORE
    assert batch["tokens"].tolist() == [[0, 10, 11, 1], [0, 12, 1, PAD]]
    assert batch["labels"].tolist() == [[10, 11, 1, no], [12, 1, no, no]]
    assert batch["positions"].tolist() == [[0, 1, 2, 3], [0, 1, 2, 0]]
    assert batch["documents"].tolist() == [[0, 0, 0, 0], [0, 0, 0, 1]]
    assert batch["valid"].tolist() == [[True] * 4, [True, True, True, False]]


def test_a_document_goes_on_at_position_0_in_the_next_row(make_store: Make) -> None:
    batch = Blocks(make_store(documents(6, 4)), context=4, pad_id=PAD).batch([0, 1, 2])
    assert batch["positions"].tolist() == [[0, 1, 2, 3], [0, 1, 0, 1], [0, 1, 0, 1]]
    assert batch["documents"].tolist() == [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("tokens", "rows"), [(0, 0), (1, 0), (2, 1), (8, 1), (9, 1), (10, 2), (17, 2), (19, 3)]
)
def test_rows_of_short_texts(make_store: Make, tokens: int, rows: int) -> None:
    """DATA-01: block + 1 tokens are one row; a tail is a row with padding."""
    store = make_store(documents(tokens) if tokens else [])
    assert len(Blocks(store, context=8, pad_id=PAD)) == rows


def test_a_row_of_block_plus_one_tokens_has_block_targets(make_store: Make) -> None:
    """MASK-07: 2 rows from 2 * 8 + 1 tokens have 2 * 8 targets, each the very next token."""
    batch = Blocks(make_store([list(range(10, 27))]), context=8, pad_id=PAD).batch([0, 1])
    assert int((batch["labels"] != IGNORE).sum()) == 16
    assert torch.equal(batch["labels"], batch["tokens"] + 1)


def test_one_shift_only_on_a_cycle(make_store: Make) -> None:
    """MASK-07: the perfect model of a cycle, argmax after t is t + 1, has no loss here."""
    cycle = [i % 10 for i in range(41)]
    batch = Blocks(make_store([cycle]), context=10, pad_id=PAD).batch(range(4))
    logits = 30.0 * torch.nn.functional.one_hot((batch["tokens"] + 1) % 10, 10).float()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
    assert loss < 1e-4


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=8)


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 12), st.booleans())
def test_every_target_exactly_once(
    make_store: Make, lengths: list[int], context: int, isolate: bool
) -> None:
    docs = documents(*lengths)
    blocks = Blocks(make_store(docs), context=context, pad_id=PAD, isolate=isolate)
    seen: Counter[tuple[int, int]] = Counter()
    for i in range(len(blocks)):
        row = blocks[i]
        pairs = zip(row["tokens"].tolist(), row["labels"].tolist(), strict=True)
        seen.update(pair for pair in pairs if pair[1] != IGNORE)
    wanted = Counter((a, b) for doc in docs for a, b in pairwise(doc))
    assert seen == wanted
    assert blocks.supervised == wanted.total()


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 12))
def test_documents_are_told_apart(make_store: Make, lengths: list[int], context: int) -> None:
    """Document numbers and positions as a slow loop over the stream gives them."""
    docs = documents(*lengths)
    owner = [(d, i) for d, doc in enumerate(docs) for i in range(len(doc))]
    blocks = Blocks(make_store(docs), context=context, pad_id=PAD)
    for i in range(len(blocks)):
        row, part = blocks[i], owner[i * context : (i + 1) * context]
        begin = part[0]
        for t, (doc, place) in enumerate(part):
            assert row["documents"][t] == doc - begin[0]
            assert row["positions"][t] == place - (begin[1] if doc == begin[0] else 0)
        padding = slice(len(part), context)
        assert row["valid"].tolist() == [True] * len(part) + [False] * (context - len(part))
        assert (row["tokens"][padding] == PAD).all()
        assert (row["labels"][padding] == IGNORE).all()
        assert not set(row["documents"][padding].tolist()) & {d - begin[0] for d, _ in part}


def test_joined_rows_are_one_text(make_store: Make) -> None:
    blocks = Blocks(make_store(documents(5, 6)), context=4, pad_id=PAD, isolate=False)
    assert set(blocks.batch([0, 1])) == {"tokens", "labels"}
    tail = blocks.batch([0, 2])
    assert tail["valid"].tolist() == [[True] * 4, [True, True, True, False]]


def test_rows_and_batches_agree(make_store: Make) -> None:
    blocks = Blocks(make_store(documents(5, 9, 3, 7)), context=4, pad_id=PAD)
    order = [3, 0, 5, 3, 2]
    batch = blocks.batch(order)
    for name, tensor in batch.items():
        assert torch.equal(tensor, torch.stack([blocks[i][name] for i in order])), name


@pytest.mark.parametrize("index", [-1, 2])
def test_no_row_outside(make_store: Make, index: int) -> None:
    with pytest.raises(IndexError):
        Blocks(make_store(documents(9)), context=4, pad_id=PAD)[index]
