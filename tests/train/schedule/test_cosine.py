"""Cosine: every factor by formula, the same whatever was asked before."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.train.schedule import Cosine


def factors(total, **fields):
    made = Cosine(Cosine.Config(**fields), total_steps=total)
    return [made.factor(update) for update in range(total)]


def test_warm_up_five_then_cosine_to_twenty():
    """CKPT-02: the peak is reached exactly at the fifth update, the last is min_ratio."""
    found = factors(20, warmup=5, min_ratio=0.1)
    assert found[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    rest = [0.1 + 0.9 * (1 + math.cos(math.pi * k / 15)) / 2 for k in range(1, 16)]
    assert found[5:] == pytest.approx(rest, abs=1e-12)
    assert found[-1] == pytest.approx(0.1, abs=1e-12)


def test_warm_up_as_a_fraction():
    assert factors(100, warmup=0.05) == factors(100, warmup=5)


@given(st.integers(1, 60), st.integers(0, 80), st.floats(0, 1))
def test_factors_stay_between_zero_and_one(total, warmup, min_ratio):
    found = factors(total, warmup=warmup, min_ratio=min_ratio)
    assert all(0 <= f <= 1 for f in found)
    assert warmup > total or max(found) <= 1
    made = Cosine(Cosine.Config(warmup=warmup, min_ratio=min_ratio), total_steps=total)
    assert found[::-1] == [made.factor(update) for update in reversed(range(total))]


@pytest.mark.parametrize("fields", [{"warmup": -1}, {"warmup": 1.5}, {"min_ratio": 2.0}])
def test_impossible_fields_are_refused(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        Cosine.Config(**fields)
