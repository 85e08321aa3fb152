"""From logits to tokens: penalties, cuts, and the distribution of what is drawn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.models.sampling import Sampling, draw, keep_top, penalise

INF = float("inf")


def test_a_penalty_lowers_whatever_the_sign() -> None:
    found = penalise(torch.tensor([[-1.0, 2.0, 3.0]]), torch.tensor([[True, True, False]]), 1.5)
    torch.testing.assert_close(found, torch.tensor([[-1.5, 4 / 3, 3.0]]))


def test_top_k_keeps_k_even_among_equals() -> None:
    found = keep_top(torch.tensor([[1.0, 2, 2, 2, 0]]), 2, None)
    assert found.isfinite().sum() == 2
    assert found[found.isfinite()].tolist() == [2, 2]
    assert keep_top(torch.tensor([[1.0, 3, 2]]), 9, None).tolist() == [[1, 3, 2]]


def test_top_p_keeps_the_fewest_that_reach_it_and_never_none() -> None:
    shares = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()

    def kept(p: float) -> list[int]:
        return keep_top(shares, None, p)[0].isfinite().nonzero().flatten().tolist()

    assert kept(1e-9) == [1]
    assert kept(0.5) == [1]
    assert kept(0.6) == [1, 3]
    assert kept(0.76) == [1, 2, 3]
    assert kept(0.95) == kept(1.0) == [0, 1, 2, 3]
    assert keep_top(torch.zeros(1, 4), None, 0.5).isfinite().sum() == 2


def test_top_p_cuts_what_top_k_left() -> None:
    shares = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    # Of the two kept, the first has 4/7 of what is left.
    assert keep_top(shares, 2, 0.5)[0].isfinite().tolist() == [True, False, False, False]


def test_temperature_zero_takes_the_first_of_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 3, 3, 1], [-INF, -2, -1, -INF]])
    for u in (0.0, 0.999):
        assert draw(logits, Sampling(temperature=0), torch.full((2,), u)).tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 5e-324])
def test_a_tiny_temperature_takes_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([[-INF, 3.0, 5, 4.99, -INF], [-INF, -9.0, -8, -9, -7]])
    sampling = Sampling(temperature=temperature, top_k=4, top_p=0.9)
    assert draw(logits, sampling, torch.tensor([0.9, 0.0])).tolist() == [2, 4]


def test_draws_follow_the_softmax_of_the_tempered_logits() -> None:
    torch.manual_seed(0)
    logits, n, temperature = torch.randn(12) * 2, 40_000, 0.7
    uniform = torch.rand(n)
    found = draw(logits.expand(n, -1), Sampling(temperature=temperature), uniform)
    expected = (logits / temperature).softmax(-1) * n
    counts = found.bincount(minlength=12)
    chi = ((counts - expected).square() / expected).sum().item()
    # 11 degrees of freedom: above 31.3 once in a thousand.
    assert chi < 31.3
    untempered = logits.softmax(-1) * n
    assert ((counts - untempered).square() / untempered).sum() > 1000


def test_a_draw_is_the_inverse_distribution_function() -> None:
    logits = torch.tensor([[0.2, 0.3, 0.0, 0.5]]).log()
    edges = {0.0: 0, 0.19: 0, 0.21: 1, 0.49: 1, 0.51: 3, 1 - 2**-24: 3}
    for u, expected in edges.items():
        assert draw(logits, Sampling(), torch.tensor([u])).item() == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([None, 0.01, 0.9, 1.0]),
    st.sampled_from([0.0, 0.5, 1 - 2**-24]),
)
def test_what_is_at_minus_infinity_is_never_drawn(
    values: list[float],
    banned: set[int],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    u: float,
) -> None:
    banned = {i for i in banned if i < len(values)}
    if len(banned) == len(values):
        return
    logits = torch.tensor([[-INF if i in banned else v for i, v in enumerate(values)]])
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    token = draw(logits, sampling, torch.tensor([u])).item()
    assert token not in banned
    if top_k == 1 or temperature == 0:
        assert math.isclose(logits[0, token].item(), logits.max().item())


@pytest.mark.parametrize(
    "fields",
    [
        {"max_new_tokens": 0},
        {"min_new_tokens": -1},
        {"min_new_tokens": 9, "max_new_tokens": 8},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": INF},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"repetition_penalty": 0.0},
        {"stop": ["a", ""]},
        {"n": 0},
        {"repetition_penalty": INF},
        {"seed": 10**30},
    ],
)
def test_values_that_mean_nothing_are_refused(fields: dict) -> None:
    key = next(iter(fields))
    with pytest.raises(RequestError, match=f"{key}=.*expected"):
        Sampling(**fields)
