"""The streaming form equals the dense one, in float64, with every mask and feature."""

import pytest
import torch

from tests.nn.test_banded import more
from txlab.nn.backend import Math
from txlab.nn.mask import Mask
from txlab.testing.online_softmax import online_attention, start, update
from txlab.testing.tiny import DIMS, floats


@pytest.mark.parametrize("tile", [1, 4, 100])
@pytest.mark.parametrize("case", more())
def test_equals_the_dense_result(case: str, tile: int) -> None:
    mask = more()[case]
    sizes = ((4, mask.n_queries, 8), (2, mask.n_keys, 8), (2, mask.n_keys, 5))
    q, k, v = (
        floats(2, *size, seed=i, dtype=torch.float64).requires_grad_()
        for i, size in enumerate(sizes)
    )
    sink = floats(4, seed=5, dtype=torch.float64).requires_grad_()
    for how in (
        {},
        {"softcap": 1.5, "score": lambda h, q, k: -0.2 * (h + 1.0) * (q - k)},
        {"sink_logit": sink},
    ):
        found = online_attention(q, k, v, mask, scale=0.5, tile=tile, **how)
        dense = Math(Math.Config(), DIMS).attend(q, k, v, mask, scale=0.5, **how)
        leaves = [q, k, v, *([sink] if "sink_logit" in how else [])]
        pairs = []
        for y in (found, dense):
            weight = floats(*y.shape, seed=9, dtype=torch.float64)
            pairs.append([y, *torch.autograd.grad((y * weight).sum(), leaves)])
        torch.testing.assert_close(*pairs, atol=1e-12, rtol=1e-10)


def test_the_update_by_hand() -> None:
    """Scores ln 1, ln 2 and then ln 5: weights 1/8, 2/8, 5/8, whatever came first."""
    q = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    scores = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).log().view(1, 1, 1, 3)
    v = torch.tensor([8.0, 16.0, 24.0], dtype=torch.float64).view(1, 1, 3, 1)
    for cut in (1, 2):
        state = start(q, 1, None)
        for s, values in zip(scores.split(cut, 3), v.split(cut, 2), strict=True):
            state = update(*state, s, values)
        largest, total, y = state
        assert largest.exp().item() == pytest.approx(5)
        assert total.item() == pytest.approx(8 / 5)
        assert (y / total).item() == pytest.approx(1 + 4 + 15)


def test_large_scores_do_not_overflow() -> None:
    q, k = torch.full((1, 1, 3, 1), 1e3), torch.arange(3.0).view(1, 1, 3, 1)
    v = torch.arange(3.0).view(1, 1, 3, 1)
    y = online_attention(q, k, v, Mask(3, 3), scale=1.0, tile=1)
    assert y.flatten().tolist() == [0, 1, 2]
