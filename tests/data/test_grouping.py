from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data import IGNORE, Batch, Text
from txlab.data.grouping import Grouped, shared
from txlab.data.loader import TokenBatches
from txlab.data.rows import Rows

Make = Callable[..., Text]
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=40)


class Long(Rows):
    """Row i has `lengths[i]` tokens i and as many targets."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def batch(self, indices: list[int]) -> Batch:
        width = max(self._lengths[i] for i in indices)
        rows = torch.full((len(indices), width), IGNORE)
        for row, i in zip(rows, indices, strict=True):
            row[: self._lengths[i]] = i
        return {"tokens": rows.clamp(min=0), "labels": rows}


@given(LENGTHS, st.integers(0, 60), st.integers(-5, 2**65))
def test_every_row_once_an_epoch_within_the_budget(
    lengths: list[int], more: int, seed: int
) -> None:
    budget = max(lengths) + more
    order = Grouped(np.array(lengths), budget, seed)
    for epoch in range(3):
        found = []
        for step in range(epoch * order.n_steps, (epoch + 1) * order.n_steps):
            rows, epochs = order.step(step)
            assert rows
            assert set(epochs) == {epoch}
            assert len(rows) * max(lengths[i] for i in rows) <= budget
            assert max(lengths[i] for i in rows) <= order.width(step)
            found += rows
        assert sorted(found) == list(range(len(lengths)))
    assert order.step_rows * order.n_steps == len(lengths)


@given(LENGTHS, st.integers(1, 4), st.sampled_from([None, 1, 40, 90]))
def test_ranks_share_the_rows_of_a_step(
    lengths: list[int], world: int, micro: int | None
) -> None:  # DDP-02
    order = Grouped(np.array(lengths), 100, seed=3)
    for step in range(order.n_steps):
        ranks = [
            TokenBatches(Long(lengths), order, micro_tokens=micro, rank=r, world=world)
            for r in range(world)
        ]
        rows = [i for rank in ranks for part in rank.indices(step) for i in part]
        assert rows == order.step(step)[0]
        batches = [rank.at(step) for rank in ranks]
        assert len({len(of_rank) for of_rank in batches}) == 1
        counted = Counter(
            int(label) for of_rank in batches for b in of_rank for label in b["labels"].flatten()
        )
        assert {i: n for i, n in counted.items() if i != IGNORE} == {i: lengths[i] for i in rows}
        if micro is not None:
            sizes = [b["tokens"].numel() for of_rank in batches for b in of_rank]
            assert all(s <= max(micro, order.width(step)) for s in sizes)


def test_orders_differ_from_epoch_to_epoch_and_from_seed_to_seed() -> None:  # DDP-05
    lengths = np.random.default_rng(0).integers(1, 200, 500)
    orders = []
    for seed in (0, 1):
        order = Grouped(lengths, 1000, seed)
        for epoch in range(3):
            steps = range(epoch * order.n_steps, (epoch + 1) * order.n_steps)
            orders.append(tuple(tuple(order.step(s)[0]) for s in steps))
    assert len(set(orders)) == 6
    assert len({frozenset(map(frozenset, order)) for order in orders}) == 6  # other companions


def test_a_step_needs_no_step_before_it() -> None:
    lengths = np.arange(1, 300)
    steps = [Grouped(lengths, 500, 7).step(step) for step in (0, 5, 1000, 10**9)]
    fresh = [Grouped(lengths, 500, 7).step(step) for step in (10**9, 1000, 5, 0)]
    assert steps == fresh[::-1]


def test_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 256, 5000)
    order = Grouped(lengths, 4096, 0)
    steps = [order.step(step)[0] for step in range(order.n_steps)]
    places = sum(len(rows) * lengths[rows].max() for rows in steps)
    assert lengths.sum() / places > 0.96
    sizes = sorted(len(rows) * order.width(step) for step, rows in enumerate(steps))
    assert sizes[1] > 4096 - 256  # only the one step of the tail may have room for a row


def test_shares() -> None:
    assert shared(5, 0, 2, 9) == [(0, 2)]
    assert shared(5, 1, 2, 2) == [(2, 4), (4, 5)]
    assert shared(5, 0, 2, 2) == [(0, 2), (2, 2)]
    assert [shared(1, r, 3, 4) for r in range(3)] == [[(0, 0)], [(0, 0)], [(0, 1)]]


def test_a_budget_below_a_row_is_refused() -> None:
    with pytest.raises(RequestError, match=r"data\.batch_tokens=9 is less than the longest row of"):
        Grouped(np.array([3, 10]), 9, 0)


def test_text_by_tokens(make_text: Make, tmp_path: Path) -> None:
    for i in range(60):
        (tmp_path / f"{i}.txt").write_text(f"number {i} of many. " * (1 + i % 7))
    made = make_text(
        path=str(tmp_path / "*.txt"), packing="none", batch_tokens=256, context=64,
        val_fraction=0.1,
    )  # fmt: skip
    order = made.order()
    assert isinstance(order, Grouped)
    assert made.step_rows * order.n_steps == len(made.train)
    seen = []
    for step, batches in enumerate(made.step_batches(0, order.n_steps)):
        assert sum(batch["tokens"].numel() for batch in batches) <= 256
        seen += [i for part in made.step_batches().indices(step) for i in part]
    assert sorted(seen) == list(range(len(made.train)))
    assert made.row_tokens == pytest.approx(made.train.lengths().mean())
    assert next(iter(made.val_batches()))["tokens"].shape[0] <= 4
    steps = list(made.step_batches(3, 9))
    for whole, rest in zip(list(made.step_batches(0, 9))[3:], steps, strict=True):
        assert torch.equal(whole[0]["tokens"], rest[0]["tokens"])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_tokens": 0}, "batch_tokens=0"),
        ({"batch_tokens": 9, "micro_batch_size": 1}, "micro_batch_tokens with batch_tokens"),
        ({"micro_batch_tokens": 9}, "micro_batch_tokens=9 .*beside batch_tokens"),
    ],
)
def test_impossible_settings_are_refused(fields: dict, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        Text.Config(**fields)
