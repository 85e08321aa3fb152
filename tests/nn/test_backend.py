"""Backends compute one function: the worked numbers, the definition, rows that see nothing."""

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.backend import backend
from txlab.nn.mask import Mask
from txlab.testing.tiny import DIMS, floats

BACKENDS = tuple(backend.options)
CPU = torch.device("cpu")


def able(*features: str, trains: bool = False) -> list[str]:
    """Backends that compute these features, on a CPU with gradients where `trains`."""
    return [
        name
        for name, option in backend.options.items()
        if set(features) <= option.cls.supports
        and (not trains or option.cls(option.config(), DIMS).trains(CPU))
    ]


CORNERS = torch.tensor([[1.0, 0], [0, 1], [1, 1]])[None, None]
VALUES = torch.tensor([[1.0, 2], [3, 4], [5, 6]])[None, None]


def attend(name: str, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **options) -> Tensor:
    features = frozenset(set(options) & {"softcap", "score"})
    chosen = backend.build(backend.config(name), DIMS).pick(features)
    return chosen.attend(q, k, v, mask, scale=q.shape[-1] ** -0.5, **options)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("causal", "expected"),
    [
        (False, [[3.000, 4.000], [3.407, 4.407], [3.510, 4.510]]),
        (True, [[1, 2], [2.340, 3.340], [3.510, 4.510]]),
    ],
)
def test_worked_numbers(name: str, causal: bool, expected: list[list[float]]) -> None:
    found = attend(name, CORNERS, CORNERS, VALUES, Mask(3, 3, causal=causal))
    torch.testing.assert_close(found[0, 0], torch.tensor(expected), atol=5e-4, rtol=0)


def masks() -> dict[str, Mask]:
    """Masks over 2 rows of 6 queries; keys 6, or 9 where a cache stands before."""
    documents = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1]])
    valid = torch.tensor([[False, False, True, True, True, True], [False] * 6])
    starts = torch.tensor([[3], [1]]) + torch.arange(6)
    return {
        "full": Mask(6, 6, causal=False),
        "causal": Mask(6, 6),
        "window": Mask(6, 6, window=3),
        "window, both ways": Mask(6, 6, causal=False, window=2),
        "documents": Mask(6, 6, documents=documents),
        "documents, window": Mask(6, 6, documents=documents, window=2),
        "padding": Mask(6, 6, valid=valid),
        "padding, window, both ways": Mask(6, 6, causal=False, valid=valid, window=2),
        "cache": Mask(6, 9, q_index=3),
        "cache, rows": Mask(6, 9, q_index=starts),
        "cache, rows, window": Mask(6, 9, q_index=starts, window=3),
    }


@pytest.mark.parametrize("name", [name for name in able(trains=True) if name != "math"])
@pytest.mark.parametrize("case", masks())
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_equals_the_definition_in_values_and_gradients(
    name: str, case: str, n_kv_heads: int
) -> None:
    mask = masks()[case]
    found: dict[str, list[Tensor]] = {}
    for which in ("math", name):
        q = floats(2, 4, 6, 8, seed=1).requires_grad_()
        k = floats(2, n_kv_heads, mask.n_keys, 8, seed=2).requires_grad_()
        v = floats(2, n_kv_heads, mask.n_keys, 5, seed=3).requires_grad_()
        y = attend(which, q, k, v, mask)
        grads = torch.autograd.grad((y * floats(*y.shape, seed=4)).sum(), (q, k, v))
        found[which] = [y, *grads]
    torch.testing.assert_close(found[name], found["math"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("n_keys", [1, 7])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_a_single_query_reads_its_own_group_of_heads(
    name: str, n_keys: int, n_kv_heads: int
) -> None:
    q, k, v = floats(2, 4, 1, 8), floats(2, n_kv_heads, n_keys, 8), floats(2, n_kv_heads, n_keys, 5)
    found = attend(name, q, k, v, Mask(1, n_keys, q_index=n_keys - 1))
    wide = [x.repeat_interleave(4 // n_kv_heads, dim=1) for x in (k, v)]
    weights = (q @ wide[0].transpose(-1, -2) * 8**-0.5).softmax(-1)
    torch.testing.assert_close(found, weights @ wide[1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", able(trains=True))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_that_sees_nothing_yields_zeros_and_finite_gradients(
    name: str, dtype: torch.dtype
) -> None:
    q, k, v = (floats(2, 4, 6, 8, seed=i, dtype=dtype).requires_grad_() for i in range(3))
    y = attend(name, q, k, v, masks()["padding"])
    assert (y[0, :, :2] == 0).all()
    assert (y[1] == 0).all()
    assert (y[0, :, 2:] != 0).any()
    for grad in torch.autograd.grad(y.float().sum(), (q, k, v)):
        assert grad.isfinite().all()


@pytest.mark.parametrize("name", able("softcap"))
def test_softcap_squashes_scores(name: str) -> None:
    y = attend(name, 100 * CORNERS, CORNERS, VALUES, Mask(3, 3, causal=False), softcap=1e-4)
    torch.testing.assert_close(y, VALUES.mean(2, keepdim=True).expand(y.shape), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", able("score"))
def test_a_score_is_added_by_head_query_and_key(name: str) -> None:
    q = floats(2, 4, 6, 8)
    k, v = floats(2, 2, 9, 8, seed=1), floats(2, 2, 9, 8, seed=2)
    mask = masks()["cache, rows"]

    def far(h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return -0.5 * (h + 1) * (q - k)

    wide = [x.repeat_interleave(2, dim=1) for x in (k, v)]
    scores = q @ wide[0].transpose(-1, -2) * 8**-0.5
    for b, start in enumerate((3, 1)):
        for h in range(4):
            for i in range(6):
                for j in range(9):
                    hidden = j > start + i
                    scores[b, h, i, j] += -torch.inf if hidden else -0.5 * (h + 1) * (start + i - j)
    found = attend(name, q, k, v, mask, score=far)
    torch.testing.assert_close(found, scores.softmax(-1) @ wide[1], atol=1e-5, rtol=1e-5)


def test_what_a_backend_cannot_compute_is_refused_by_name() -> None:
    with pytest.raises(
        RequestError, match=r"sdpa cannot compute softcap: use model.backend=.*math"
    ):
        backend.build(backend.config("sdpa"), DIMS).pick(frozenset({"softcap"}))


def test_auto_picks_the_fastest_that_is_able() -> None:
    auto = backend.build(backend.config("auto"), DIMS)
    assert auto.pick(frozenset()).name == "sdpa or banded"
    assert auto.pick(frozenset({"softcap"})).name == "math or banded"
    assert auto.pick(frozenset()) is auto.pick(frozenset())
    with pytest.raises(RequestError, match="no backend computes magic"):
        auto.pick(frozenset({"magic"}))
