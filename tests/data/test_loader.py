from collections.abc import Callable
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from txlab.core.errors import RequestError
from txlab.data import IGNORE, Batch
from txlab.data.loader import EpochBatches, StepBatches
from txlab.data.rows import Rows, collate


class Numbers(Rows):
    """Row i holds the token i and one target."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Batch:
        return {"tokens": torch.tensor([index]), "labels": torch.tensor([index])}


def rows_of(batches: list[Batch]) -> list[int]:
    return [i for batch in batches for i in batch["tokens"][:, 0].tolist()]


@given(st.integers(1, 40), st.integers(0, 9), st.integers(0, 20))
def test_ranks_and_micro_batches_share_the_same_rows(n: int, seed: int, step: int) -> None:
    whole = rows_of(StepBatches(Numbers(n), batch_size=24, seed=seed).at(step))
    for world in (1, 2, 3, 4):
        for micro in (None, 1, 2):
            parts = [
                StepBatches(
                    Numbers(n),
                    batch_size=24,
                    micro_batch_size=micro,
                    seed=seed,
                    rank=r,
                    world=world,
                ).at(step)
                for r in range(world)
            ]
            assert [i for part in parts for i in rows_of(part)] == whole
            size = micro or 24 // world
            assert all(len(batch["tokens"]) == size for part in parts for batch in part)


def test_three_epochs_have_three_orders_and_disjoint_ranks() -> None:  # DDP-05
    epochs = []
    for epoch in range(3):
        ranks = [
            rows_of([b for s in range(3) for b in loader.at(epoch * 3 + s)])
            for loader in (
                StepBatches(Numbers(24), batch_size=8, seed=1, rank=r, world=2) for r in range(2)
            )
        ]
        assert not set(ranks[0]) & set(ranks[1])
        assert sorted(ranks[0] + ranks[1]) == list(range(24))
        epochs.append(tuple(ranks[0] + ranks[1]))
    assert len(set(epochs)) == 3


@given(st.integers(0, 15), st.integers(1, 30))
def test_a_resumed_stream_is_the_rest_of_the_unbroken_one(start: int, n: int) -> None:
    def stream(first: int) -> list[list[int]]:
        return [
            rows_of(b) for b in StepBatches(Numbers(n), batch_size=4, seed=3, start=first, stop=16)
        ]

    assert stream(start) == stream(0)[start:]


def test_length_and_endless_streams() -> None:
    assert len(StepBatches(Numbers(5), batch_size=2, seed=0, start=3, stop=10)) == 7
    endless = StepBatches(Numbers(5), batch_size=2, seed=0)
    assert len(list(islice(endless, 9))) == 9
    with pytest.raises(TypeError, match="no length"):
        len(endless)


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_workers_keep_the_order(workers: int) -> None:
    steps = StepBatches(Numbers(11), batch_size=4, micro_batch_size=2, seed=0, start=2, stop=7)
    loader = DataLoader(steps, batch_size=None, num_workers=workers)
    assert [rows_of(batches) for batches in loader] == [rows_of(batches) for batches in steps]


@pytest.mark.parametrize(
    ("batch", "micro", "world", "numbers"),
    [
        (10, None, 3, "10.*3 ranks.*multiple of 3"),
        (12, 5, 1, "12.*size=5"),
        (12, 4, 2, "multiple of 8"),
    ],
)
def test_uneven_shares_are_refused(batch: int, micro: int | None, world: int, numbers: str) -> None:
    with pytest.raises(RequestError, match=numbers):
        StepBatches(Numbers(9), batch_size=batch, micro_batch_size=micro, seed=0, world=world)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 5))
def test_validation_sees_every_row_once(n: int, micro: int, world: int) -> None:  # DDP-02
    ranks = [
        list(EpochBatches(Numbers(n), micro_batch_size=micro, rank=r, world=world))
        for r in range(world)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    assert len({len(b["tokens"]) for batches in ranks for b in batches}) == 1
    labels = [i for batches in ranks for b in batches for i in b["labels"][:, 0].tolist()]
    assert sorted(i for i in labels if i != IGNORE) == list(range(n))
    assert len(EpochBatches(Numbers(n), micro_batch_size=micro, world=world)) == len(ranks[0])


def test_no_rows_no_batches() -> None:
    assert list(EpochBatches(Numbers(0), micro_batch_size=4, world=2)) == []


def test_collating_fills_in_valid() -> None:
    row: Batch = {"tokens": torch.tensor([5, 6]), "labels": torch.tensor([6, IGNORE])}
    padded: Batch = {**row, "valid": torch.tensor([True, False])}
    assert collate([row, padded])["valid"].tolist() == [[True, True], [True, False]]
    assert "valid" not in collate([row, row])


def test_batches_of_a_store_equal_collated_rows(make_text: Callable, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("some words that go on and on " * 30)
    made = make_text(path=str(tmp_path / "a.txt"), val_fraction=0.1, batch_size=4)
    step = made.step_batches()
    for batch, part in zip(step.at(3), step.indices(3), strict=True):
        slow = made.collate([made.train[i] for i in part])
        assert all(torch.equal(batch[name], slow[name]) for name in batch)


def test_rows_learn_the_epoch_that_they_are_drawn_in():
    """At the seam of two epochs as well, in any split."""

    class Stamped(Rows):
        def __len__(self):
            return 5

        def drawn(self, indices, epochs):
            numbers = torch.tensor([[i, e] for i, e in zip(indices, epochs, strict=True)])
            return {"tokens": numbers, "labels": numbers}

    def seen(world, micro):
        found = []
        for step in range(4):
            for rank in range(world):
                made = StepBatches(
                    Stamped(), batch_size=4, micro_batch_size=micro, seed=0, rank=rank, world=world
                )
                found += [tuple(row) for b in made.at(step) for row in b["tokens"].tolist()]
        return found

    whole = seen(1, None)
    assert [epoch for _, epoch in whole] == [place // 5 for place in range(16)]
    for epoch in range(3):
        assert {i for i, e in whole if e == epoch} == {0, 1, 2, 3, 4}
    assert seen(2, 1) == seen(2, 2) == seen(1, 2) == whole
