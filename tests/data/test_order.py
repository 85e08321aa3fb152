import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.data.order import SORTED, indices_of_step, permutation, scattered

SIZES = st.integers(1, 200)
SEEDS = st.integers(-(2**70), 2**70)


@given(SIZES, SEEDS, st.integers(0, 2**40))
def test_an_epoch_is_a_permutation(n: int, seed: int, epoch: int) -> None:
    assert sorted(permutation(n, seed, epoch).tolist()) == list(range(n))


@given(SIZES, st.integers(1, 50), SEEDS, st.integers(0, 30))
def test_steps_cut_the_stream_of_epochs(n: int, batch: int, seed: int, steps: int) -> None:
    stream = [i for step in range(steps) for i in indices_of_step(n, batch, seed, step)]
    epochs = -(-steps * batch // n)
    whole = [i for epoch in range(epochs) for i in permutation(n, seed, epoch).tolist()]
    assert stream == whole[: steps * batch]


@given(SIZES, st.integers(1, 500), SEEDS, st.integers(0, 10**12))
def test_a_step_needs_no_step_before_it(n: int, batch: int, seed: int, step: int) -> None:
    found = indices_of_step(n, batch, seed, step)
    permutation.cache_clear()
    assert found == indices_of_step(n, batch, seed, step)
    assert len(found) == batch


def test_epochs_and_seeds_differ() -> None:  # DDP-05
    orders = [tuple(permutation(50, s, e).tolist()) for s in range(4) for e in range(4)]
    assert len(set(orders)) == 16
    assert all(orders[i] != tuple(range(50)) for i in range(16))


def test_places_are_uniform() -> None:
    """Each of the 6 orders of 3 rows about as often as the others; row 0 is first in 1 of 10."""
    orders, counts = np.unique(
        [permutation(3, 7, e) for e in range(6000)], axis=0, return_counts=True
    )
    assert len(orders) == 6
    assert abs(counts - 1000).max() < 150  # five standard deviations
    first = sum(permutation(10, s, 0)[0] == 0 for s in range(5000))
    assert abs(first - 500) < 110


def test_neighbouring_epochs_are_unrelated() -> None:
    orders = [permutation(2000, 0, e) for e in range(5)]
    for one, other in pairwise(orders):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.12
        assert (one == other).sum() < 12


def test_the_order_of_saved_runs_never_changes() -> None:
    """A resumed run finds its rows by this function: a change here breaks every checkpoint."""
    assert permutation(8, 0, 0).tolist() == PINNED
    assert indices_of_step(8, 3, 0, 2)[:2] == PINNED[6:]


PINNED = [7, 2, 0, 3, 5, 1, 4, 6]


@pytest.mark.parametrize("bad", [(0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 0, -1)])
def test_nonsense_is_refused(bad: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"batch_size=|step="):
        indices_of_step(*bad)


@given(st.integers(1, 300), SEEDS, st.integers(0, 2**40))
def test_many_rows_are_permuted_one_by_one(n: int, seed: int, epoch: int) -> None:
    whole = scattered(n, seed, epoch, np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    some = np.array([n - 1, 0, n // 2])
    assert scattered(n, seed, epoch, some).tolist() == whole[some].tolist()


def test_a_step_of_a_hundred_million_rows() -> None:
    """No memory and no time goes into the rows that a step does not have."""
    n, batch = 10**8, 1000
    tracemalloc.start()
    rows = indices_of_step(n, batch, 5, 3 * (n // batch) + 7)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert len(set(rows)) == batch
    assert abs(np.mean(rows) / n - 0.5) < 0.05
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < 0.15
    assert rows == indices_of_step(n, batch, 5, 3 * (n // batch) + 7)


def test_places_of_many_rows_are_uniform() -> None:
    orders, counts = np.unique(
        [scattered(4, s, e, np.arange(4)) for s in range(60) for e in range(80)],
        axis=0, return_counts=True,
    )  # fmt: skip
    assert len(orders) == 24
    assert abs(counts - 200).max() < 75  # five standard deviations
    one = scattered(3000, 0, 0, np.arange(3000))
    assert abs(np.corrcoef(one, np.arange(3000))[0, 1]) < 0.1
    assert np.abs(np.diff(one)).mean() == pytest.approx(1000, rel=0.06)


def test_where_sorting_ends() -> None:
    small, large = indices_of_step(SORTED, 4, 0, 0), indices_of_step(SORTED + 1, 4, 0, 0)
    assert small == permutation(SORTED, 0, 0)[:4].tolist()
    assert large == scattered(SORTED + 1, 0, 0, np.arange(4)).tolist()


def test_the_order_of_many_rows_never_changes() -> None:
    assert scattered(10, 1, 2, np.arange(10)).tolist() == [5, 2, 4, 3, 1, 8, 9, 7, 6, 0]
