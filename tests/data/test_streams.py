"""All kinds of order, as streams: any resume point, any ranks and workers give the same rows."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from txlab.data import Batch
from txlab.data.grouping import Grouped
from txlab.data.loader import StepBatches, Steps, TokenBatches
from txlab.data.mixing import Mixed
from txlab.data.order import Order, Shuffled
from txlab.data.rows import Rows

Make = Callable[..., Steps]
Drawn = list[tuple[int, int]]
KINDS = st.sampled_from(["shuffled", "scattered", "mixed", "grouped"])
BATCH = 12


class Numbers(Rows):
    """Row i holds the token i, and as its label the epoch it was drawn in."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def drawn(self, indices: list[int], epochs: list[int]) -> Batch:
        return {"tokens": torch.tensor(indices)[:, None], "labels": torch.tensor(epochs)[:, None]}


def order(kind: str, n: int, seed: int) -> Order:
    if kind == "mixed":
        return Mixed([n, n + 3, 2], [5, 2, 1], BATCH, seed)
    if kind == "grouped":
        return Grouped(1 + np.arange(n) * 7 % 11, 40, seed)
    return Shuffled(n, BATCH, seed)


def stream(kind: str, n: int, seed: int, **place: int) -> Steps:
    made = order(kind, n, seed)
    if isinstance(made, Grouped):
        return TokenBatches(Numbers(n), made, micro_tokens=25, **place)
    return StepBatches(Numbers(n), batch_size=BATCH, seed=seed, order=made, **place)


def drawn(batches: list[Batch]) -> Drawn:
    """(row, epoch) of all that counts."""
    pairs = [
        pair
        for batch in batches
        for pair in zip(
            batch["tokens"].flatten().tolist(), batch["labels"].flatten().tolist(), strict=True
        )
    ]
    return [pair for pair in pairs if pair[1] >= 0]


@pytest.fixture(autouse=True)
def few_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows above 20 are permuted one by one."""
    monkeypatch.setattr("txlab.data.order.SORTED", 20)


@given(KINDS, st.integers(1, 60), st.integers(-5, 2**65), st.integers(0, 15))
def test_any_resume_point_goes_on_as_the_unbroken_stream(
    kind: str, n: int, seed: int, start: int
) -> None:
    whole = [drawn(step) for step in stream(kind, n, seed, stop=16)]
    assert [drawn(step) for step in stream(kind, n, seed, start=start, stop=16)] == whole[start:]


@given(
    KINDS, st.integers(1, 60), st.integers(0, 9), st.sampled_from([1, 2, 3, 4]), st.integers(1, 4)
)
def test_any_ranks_and_workers_have_the_same_rows(
    kind: str, n: int, seed: int, world: int, workers: int
) -> None:  # DDP-02, DDP-04
    """Each step in order, each (row, epoch) as often as in the unbroken stream of one process."""
    whole = [drawn(step) for step in stream(kind, n, seed, stop=10)]
    found: list[Drawn] = [[] for _ in whole]
    for rank in range(world):
        place = {"start": 0, "stop": 10, "rank": rank, "world": world}
        turns = []
        for worker in range(workers):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("txlab.data.loader._worker", lambda w=worker: (w, workers))
                turns.append(list(stream(kind, n, seed, **place)))
        for step in range(len(whole)):  # the loader asks its workers in turn
            found[step] += drawn(turns[step % workers][step // workers])
    assert found == whole


@given(KINDS, st.integers(1, 60), st.integers(-5, 2**65))
def test_every_row_once_in_each_of_its_epochs(kind: str, n: int, seed: int) -> None:
    made = order(kind, n, seed)
    pairs = [pair for step in range(30) for pair in zip(*made.step(step), strict=True)]
    assert len(set(pairs)) == len(pairs)
    sizes = {"mixed": [range(n), range(n, 2 * n + 3), range(2 * n + 3, 2 * n + 5)]}
    for rows in sizes.get(kind, [range(n)]):
        epochs = [epoch for row, epoch in pairs if row in rows]
        last = max(epochs, default=0)
        for epoch in range(last):
            assert epochs.count(epoch) == len(rows)
