"""Which backend `auto` takes for which mask, and that it changes no result."""

import pytest
import torch

from txlab.nn.backend import Auto, Math
from txlab.nn.mask import Mask
from txlab.testing.tiny import DIMS, floats

PACKED = (torch.arange(600) // 200)[None]
VALID = torch.ones(1, 600, dtype=torch.bool)


def sizes(mask: Mask) -> tuple[tuple[int, int], ...]:
    """Heads and length of queries, keys and values."""
    return (4, mask.n_queries), (2, mask.n_keys), (2, mask.n_keys)


@pytest.mark.parametrize(
    ("mask", "scored", "name"),
    [
        (Mask(600, 600), False, "sdpa"),
        (Mask(600, 600, causal=False), False, "sdpa"),
        (Mask(600, 600), True, "banded"),
        (Mask(600, 600, window=100), False, "banded"),
        (Mask(600, 600, documents=PACKED), False, "banded"),
        (Mask(600, 600, valid=VALID), False, "banded"),
        (Mask(600, 600, causal=False, valid=VALID), False, "sdpa"),
        (Mask(300, 300, window=10), False, "sdpa"),
        (Mask(1, 600, q_index=599, window=10), False, "sdpa"),
    ],
)
def test_runs_where_much_of_a_long_row_is_unseen(mask: Mask, scored: bool, name: str) -> None:
    chosen = Auto(Auto.Config(), DIMS).pick(frozenset()).choose(mask, scored=scored)
    assert chosen.name == name
    q, k, v = (floats(1, n, t, 8, seed=n) for n, t in sizes(mask))
    score = {"score": lambda h, q, k: -0.01 * (h + 1) * (q - k)} if scored else {}
    found = [
        each.attend(q, k, v, mask, scale=0.3, **score)
        for each in (chosen, Math(Math.Config(), DIMS))
    ]
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_a_cap_takes_runs_on_long_rows_and_the_definition_on_short_ones() -> None:
    capped = Auto(Auto.Config(), DIMS).pick(frozenset({"softcap"}))
    assert capped.choose(Mask(600, 600), scored=False).name == "banded"
    assert capped.choose(Mask(300, 300), scored=False).name == "math"
