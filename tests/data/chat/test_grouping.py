"""Steps by tokens: chats, pairs and prompts of like length share batches."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from tests.data.chat.test_forms import said
from txlab.core.errors import RequestError
from txlab.data import Chat, Pairs, Prompts
from txlab.data.statistics import padding

SIZES = [1, 40, 3, 35, 2, 20, 5, 60, 1, 44, 8, 31, 2, 2, 50, 17, 25, 9, 3, 12]
ENTRIES = {
    Chat: [{"messages": said(f"u: {n}", "a: " + "x" * size)} for n, size in enumerate(SIZES)],
    Pairs: [
        {"prompt": str(n), "chosen": "x" * size, "rejected": "y" * (61 - size)}
        for n, size in enumerate(SIZES)
    ],
    Prompts: [{"prompt": f"{n} " + "x" * size, "answer": "y"} for n, size in enumerate(SIZES)],
}


def prepared(make, kind, **fields):
    fields |= {"packed": False} if kind is Chat else {}
    return make(kind, ENTRIES[kind], context=120, **fields)


@pytest.mark.parametrize("kind", ENTRIES)
def test_rows_tell_the_places_they_take(make, kind) -> None:
    rows = prepared(make, kind).train
    wanted = [rows.batch([i])["tokens"].numel() for i in range(len(rows))]
    assert rows.lengths().tolist() == wanted
    assert len({*wanted}) > 5


def test_packed_rows_all_take_the_context(make) -> None:
    rows = make(Chat, ENTRIES[Chat], context=120).train
    assert rows.lengths().tolist() == [120] * len(rows)


@pytest.mark.parametrize("kind", ENTRIES)
def test_steps_hold_every_row_once_within_their_tokens(make, kind) -> None:
    made = prepared(make, kind, batch_tokens=400)
    steps = made.step_batches()
    n = Fraction(len(made.train)) / made.step_rows
    assert n.denominator == 1
    for epoch in range(2):
        seen: Counter[int] = Counter()
        for step in range(epoch * int(n), (epoch + 1) * int(n)):
            assert sum(batch["tokens"].numel() for batch in steps.at(step)) <= 400
            seen.update(i for part in steps.indices(step) for i in part)
        assert seen == Counter(range(len(made.train)))
    assert padding(made) < 0.85 * padding(prepared(make, kind, batch_size=5))


@pytest.mark.parametrize("kind", ENTRIES)
def test_ranks_and_micro_batches_change_no_step(make, kind) -> None:
    whole = prepared(make, kind, batch_tokens=400).step_batches()
    for world, micro in ((2, None), (3, 150), (1, 140)):
        made = prepared(make, kind, batch_tokens=400, micro_batch_tokens=micro)
        ranks = [made.step_batches(rank=rank, world=world) for rank in range(world)]
        for step in range(8):
            parts = [rank.indices(step) for rank in ranks]
            assert len({len(part) for part in parts}) == 1
            together = [i for part in parts for rows in part for i in rows]
            assert sorted(together) == sorted(i for rows in whole.indices(step) for i in rows)


def test_validation_of_pairs_fits_too(make) -> None:
    made = prepared(make, Pairs, batch_tokens=500, val_fraction=0.4)
    assert all(batch["tokens"].numel() <= 500 for batch in made.val_batches())
    assert sum(len(batch["tokens"]) for batch in made.val_batches()) >= 2 * len(made.val)


def test_a_budget_below_the_longest_is_refused(make) -> None:
    longest = int(np.max(prepared(make, Chat).train.lengths()))
    with pytest.raises(RequestError, match=rf"batch_tokens=\d+ is less than .* {longest} tokens"):
        prepared(make, Chat, batch_tokens=longest - 1).step_batches()
