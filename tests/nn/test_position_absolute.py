"""Positions that are added to the embeddings."""

import math

import pytest
import torch

from txlab.core.config import Dims
from txlab.nn.position import Learned, NoPosition, Sinusoidal

DIMS = Dims(dim=8, n_heads=2, head_dim=4, n_layers=1, context=6, vocab_size=10)


def test_none_changes_nothing():
    none = NoPosition(NoPosition.Config(), DIMS)
    x = torch.randn(2, 3, 8)
    assert none.embed(x, torch.arange(3)[None]) is x
    assert none.limit() is None


def test_learned_adds_its_rows():
    learned = Learned(Learned.Config(), DIMS)
    x, positions = torch.randn(2, 3, 8), torch.tensor([[0, 1, 2], [4, 5, 0]])
    y = learned.embed(x, positions)
    assert torch.equal(y, x + learned.table.weight[positions])
    assert torch.equal(learned.embed(x, positions[:1]), x + learned.table.weight[:3])
    assert learned.limit() == 6
    assert [name for name, _ in learned.named_parameters()] == ["table.weight"]
    y.sum().backward()
    assert learned.table.weight.grad is not None
    assert learned.table.weight.grad[3].eq(0).all()


def test_sinusoidal_is_the_papers():
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same) (Vaswani et al. 2017)."""
    plain = Sinusoidal(Sinusoidal.Config(scale_embeddings=False), DIMS)
    positions = torch.tensor([[0, 1, 50]])
    y = plain.embed(torch.zeros(1, 3, 8), positions)[0]
    for row, position in enumerate((0, 1, 50)):
        for channel in range(8):
            angle = position / 10000 ** (channel // 2 * 2 / 8)
            expected = math.cos(angle) if channel % 2 else math.sin(angle)
            assert y[row, channel].item() == pytest.approx(expected, abs=1e-5)
    assert y[1, :4].tolist() == pytest.approx([0.841471, 0.540302, 0.0998334, 0.995004], abs=1e-6)
    assert not list(plain.state_dict())


def test_sinusoidal_scales_embeddings_by_the_root_of_dim():
    scaled = Sinusoidal(Sinusoidal.Config(), DIMS)
    x, positions = torch.randn(1, 2, 8), torch.arange(2)[None]
    encoding = scaled.embed(torch.zeros_like(x), positions)
    torch.testing.assert_close(scaled.embed(x, positions), x * 8**0.5 + encoding)


def test_sinusoidal_keeps_float32_angles_in_a_cast_model():
    cast = Sinusoidal(Sinusoidal.Config(), DIMS).to(torch.bfloat16)
    positions = torch.arange(4096)[None]
    zeros = torch.zeros(1, 4096, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = cast.embed(zeros.bfloat16(), positions)
    assert y.dtype == torch.bfloat16
    pairs = torch.arange(8) // 2
    angles = positions[0].double()[:, None] * 10000 ** (-2 * pairs.double() / 8)
    expected = torch.where(torch.arange(8) % 2 == 0, angles.sin(), angles.cos())
    torch.testing.assert_close(y[0].double(), expected, atol=4e-3, rtol=0)
