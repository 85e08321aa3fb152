"""Schedules beside cosine: formulas by hand, and the schedules of PyTorch and transformers."""

import math

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.train.schedule import WSD, Constant, Cosine, InverseSqrt, Linear, OneCycle

EVERY = [Cosine, Linear, Constant, WSD, InverseSqrt, OneCycle]
LAST = {Cosine: 0.1, Linear: 0.1, Constant: 1.0, WSD: 0.0, InverseSqrt: 0.5, OneCycle: 4e-6}


def factors(kind, total=20, **fields):
    made = kind(kind.Config(**fields), total_steps=total)
    return [made.factor(update) for update in range(total)]


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def stepped(make, n):
    """The rate before each of `n` updates."""
    optimizer = sgd()
    scheduler, found = make(optimizer), []
    for _ in range(n):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("kind", EVERY)
def test_resumed_in_the_middle(kind):
    """CKPT-02: peak exactly at the fifth of 20, last value by formula, the same from 3, 5, 12."""
    whole = factors(kind, warmup=5)
    assert whole[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0], abs=1e-15)
    assert whole[4] == 1.0
    assert whole[-1] == pytest.approx(LAST[kind], abs=1e-12)
    for at in (3, 5, 12):
        fresh = kind(kind.Config(warmup=5), total_steps=20)
        assert [fresh.factor(update) for update in range(at, 20)] == whole[at:]


def test_linear_and_constant_by_hand():
    assert factors(Linear, 6, warmup=2, min_ratio=0.2) == pytest.approx(
        [0.5, 1, 0.8, 0.6, 0.4, 0.2]
    )
    assert factors(Constant, 4, warmup=2) == [0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("shape", "fall"),
    [
        ("linear", [0.75, 0.5, 0.25, 0]),
        ("sqrt", [0.5, 1 - 0.5**0.5, 1 - 0.75**0.5, 0]),
        ("cosine", [(2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0]),
    ],
)
@pytest.mark.parametrize("decay", [4, 0.4])
def test_wsd_by_hand(shape, fall, decay):
    found = factors(WSD, 10, warmup=2, decay=decay, shape=shape)
    assert found == pytest.approx([0.5, 1, 1, 1, 1, 1, *fall], abs=1e-12)


def test_wsd_falls_at_once_where_the_warm_up_leaves_less():
    found = factors(WSD, 10, warmup=5, decay=8, shape="linear")
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 0.8, 0.6, 0.4, 0.2, 0], abs=1e-12)


def test_inverse_sqrt_by_hand():
    assert factors(InverseSqrt, 16, warmup=4)[3::4] == pytest.approx([1, 0.5**0.5, 3**-0.5, 0.5])
    wanted = [512**-0.5 * min(n**-0.5, n * 4**-1.5) for n in range(1, 17)]
    assert factors(InverseSqrt, 16, warmup=4, d_model=512) == pytest.approx(wanted)


def test_one_cycle_by_hand():
    found = factors(OneCycle, 11, warmup=5, start=0.2, end=0.0)
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 0.8, 0.6, 0.4, 0.2, 0.1, 0], abs=1e-12)


@pytest.mark.parametrize("three_phase", [True, False])
def test_one_cycle_is_that_of_pytorch(three_phase):
    def make(optimizer, anneal="linear"):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 1.0, 20, pct_start=0.4, anneal_strategy=anneal, three_phase=three_phase
        )

    fields = {"warmup": 0.4, "start": 1 / 25, "end": 4e-6, "three_phase": three_phase}
    assert factors(OneCycle, **fields) == pytest.approx(stepped(make, 20), abs=1e-12)
    smooth = stepped(lambda optimizer: make(optimizer, "cos"), 20)
    assert factors(OneCycle, shape="cosine", **fields)[7:] == pytest.approx(smooth[7:], abs=1e-12)


def test_those_of_transformers():
    """Theirs start from 0: our update n is their n + 1."""
    theirs = pytest.importorskip("transformers.optimization")
    pairs = [
        (Linear, {"min_ratio": 0.0}, lambda o: theirs.get_linear_schedule_with_warmup(o, 5, 20)),
        (Cosine, {"min_ratio": 0.0}, lambda o: theirs.get_cosine_schedule_with_warmup(o, 5, 20)),
        (Constant, {}, lambda o: theirs.get_constant_schedule_with_warmup(o, 5)),
        (InverseSqrt, {}, lambda o: theirs.get_inverse_sqrt_schedule(o, 5)),
    ]
    for kind, fields, make in pairs:
        assert factors(kind, warmup=5, **fields) == pytest.approx(stepped(make, 21)[1:], abs=1e-12)


def test_warm_up_in_tokens():
    config = Linear.Config(warmup=None, warmup_tokens=450).in_updates(100.0)
    assert (config.warmup, config.warmup_tokens) == (5, None)
    assert Linear.Config(warmup=3).in_updates(100.0) == Linear.Config(warmup=3)
    with pytest.raises(RequestError, match="tokens of a step"):
        Linear(Linear.Config(warmup=None, warmup_tokens=450), total_steps=20)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (Constant, {"warmup": 2, "warmup_tokens": 9}, "no warmup beside it"),
        (Constant, {"warmup_tokens": 9}, "no warmup beside it"),
        (Constant, {"warmup": None, "warmup_tokens": 0}, "warmup_tokens"),
        (Constant, {"warmup": None}, "or warmup_tokens"),
        (Linear, {"min_ratio": math.inf}, "min_ratio"),
        (WSD, {"decay": 1.5}, "decay"),
        (WSD, {"shape": "cubic"}, "shape"),
        (InverseSqrt, {"d_model": 0}, "d_model"),
        (OneCycle, {"start": 2.0}, "start"),
        (OneCycle, {"shape": "sqrt"}, "shape"),
    ],
)
def test_impossible_fields_are_refused(kind, fields, said):
    with pytest.raises(RequestError, match=said):
        kind.Config(**fields)
