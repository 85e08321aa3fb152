"""Rotary positions against worked numbers, the complex definition and their own promises."""

import math

import pytest
import torch

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.position import RoPE
from txlab.nn.position.turn import inverse_frequencies, rotation, turn

DIMS = Dims(dim=64, n_heads=4, head_dim=16, n_layers=2, context=32, vocab_size=100)
BOTH = pytest.mark.parametrize("interleaved", [False, True])
PARTS = pytest.mark.parametrize("partial", [1.0, 0.5])


def build(**fields) -> RoPE:
    return RoPE(RoPE.Config(**fields), DIMS)


def queries_keys(t: int, dtype: torch.dtype = torch.float64):
    torch.manual_seed(0)
    q = torch.randn(2, 4, t, 16, dtype=dtype, requires_grad=True)
    k = torch.randn(2, 2, t, 16, dtype=dtype, requires_grad=True)
    return q, k


def definition(x, positions, theta=10000.0, channels=16, interleaved=False):
    """Each pair as a complex number times exp(i * position * frequency)."""
    pairs = channels // 2
    i = torch.arange(pairs, dtype=torch.float64)
    angle = positions.double()[:, None, :, None] * theta ** (-2 * i / channels)
    first = (2 * i if interleaved else i).long()
    second = first + (1 if interleaved else pairs)
    turned = torch.complex(x[..., first], x[..., second]) * torch.polar(
        torch.ones(()).double(), angle
    )
    out = x.clone()
    out[..., first], out[..., second] = turned.real, turned.imag
    return out


@pytest.mark.parametrize(("m", "n"), [(1, 3), (5, 7)])
def test_worked_numbers(m, n):
    """q = k = (1, 0), pi / 6 a position: the score is cos(2 pi / 6) = 0.5 at a distance of 2."""
    one = torch.tensor([1.0, 0.0]).expand(1, 1, 1, 2)
    frequency = torch.tensor([math.pi / 6])
    at = lambda p: turn(one, rotation(torch.tensor([[p]]), frequency), 2)  # noqa: E731
    assert (at(m) * at(n)).sum().item() == pytest.approx(0.5, abs=1e-6)
    assert (at(m) * at(m)).sum().item() == pytest.approx(1.0, abs=1e-6)


@BOTH
@PARTS
@pytest.mark.parametrize("t", [1, 7])
def test_equals_the_complex_definition(interleaved, partial, t):
    rope = build(theta=500.0, interleaved=interleaved, partial=partial)
    positions = torch.stack((torch.arange(t), torch.arange(t) * 3 + 5))
    q, k = queries_keys(t)
    for x, y in zip((q, k), rope.rotate(q, k, rope.prepare(positions)), strict=True):
        expected = definition(x, positions, 500.0, int(16 * partial), interleaved)
        torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)


@BOTH
@PARTS
def test_gradients(interleaved, partial):
    rope = build(interleaved=interleaved, partial=partial)
    angles = rope.prepare(torch.arange(3)[None])
    q, k = (x[:1, :1] for x in queries_keys(3))
    turned = lambda q, k: rope.rotate(q, k, angles)  # noqa: E731
    assert torch.autograd.gradcheck(turned, (q, k))
    assert torch.autograd.gradgradcheck(turned, (q, k))


@BOTH
@PARTS
def test_scores_see_relative_positions_only_and_norms_stay(interleaved, partial):
    rope = build(interleaved=interleaved, partial=partial)
    q, k = queries_keys(6)
    k = k.repeat_interleave(2, 1)

    def scores(offset: int):
        a, b = rope.rotate(q, k, rope.prepare(torch.arange(6)[None] + offset))
        torch.testing.assert_close(a.norm(dim=-1), q.norm(dim=-1), atol=1e-5, rtol=1e-5)
        return a @ b.mT

    torch.testing.assert_close(scores(0), scores(1000), atol=1e-3, rtol=0)
    assert not torch.allclose(scores(0), q @ k.mT, atol=1e-2)


def test_layouts_are_permutations_of_each_other():
    half, pairs = build(), build(interleaved=True)
    q, k = queries_keys(5)
    order = torch.arange(16).view(2, 8).T.flatten()  # 0 8 1 9 ...: half-split order -> pairs
    positions = torch.arange(5)[None] + 5
    expected = half.rotate(q, k, half.prepare(positions))
    for x, y in zip(
        pairs.rotate(q[..., order], k[..., order], pairs.prepare(positions)), expected, strict=True
    ):
        torch.testing.assert_close(x, y[..., order])


def test_partial_leaves_the_rest_alone():
    rope = build(partial=0.25)
    q, k = queries_keys(5)
    turned, _ = rope.rotate(q, k, rope.prepare(torch.arange(5)[None]))
    assert torch.equal(turned[..., 4:], q[..., 4:])
    assert not torch.allclose(turned[..., 1:, :4], q[..., 1:, :4])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_model_keeps_float32_angles(dtype):
    """bf16 holds 769 distinct values of 0..4095; angles made in it collapse (case ROPE-03)."""
    positions = torch.arange(4096)[None]
    exact = build().prepare(positions)
    cast = build().to(dtype)
    assert not list(cast.buffers())
    with torch.autocast("cpu", torch.bfloat16):
        angles = cast.prepare(positions)
    for x, y in zip(angles, exact, strict=True):
        assert x.dtype == torch.float32
        assert torch.equal(x, y)
    one = torch.zeros(1, 1, 4096, 16, dtype=dtype)
    one[..., :8] = 1
    turned, _ = cast.rotate(one, one, angles)
    assert turned.dtype == dtype
    radians = positions[0].double()[:, None] * inverse_frequencies(16, 1e4, one.device).double()
    expected = torch.cat((radians.cos(), radians.sin()), -1)
    torch.testing.assert_close(turned[0, 0].double(), expected, atol=4e-3, rtol=0)


@BOTH
@PARTS
def test_compiled_and_single_token_equal_the_whole(interleaved, partial):
    rope = build(interleaved=interleaved, partial=partial)
    q, k = queries_keys(4)
    positions = torch.arange(4)[None] + 2
    rotate = lambda q, k: rope.rotate(q, k, rope.prepare(positions))  # noqa: E731
    expected = rotate(q, k)
    compiled = torch.compile(rotate, fullgraph=True, backend="aot_eager")(q, k)
    for x, y in zip(expected, compiled, strict=True):
        torch.testing.assert_close(x, y)
    for i in range(4):
        one = rope.rotate(
            q[:, :, i : i + 1], k[:, :, i : i + 1], rope.prepare(positions[:, i : i + 1])
        )
        torch.testing.assert_close(one[0][:, :, 0], expected[0][:, :, i])
        torch.testing.assert_close(one[1][:, :, 0], expected[1][:, :, i])


@pytest.mark.parametrize(
    "fields", [{"theta": 0}, {"partial": 0}, {"partial": 1.5}, {"partial": 0.2}]
)
def test_bad_fields_are_refused(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        build(**fields)
