"""Residual rules against the same thing written by hand."""

import pytest
import torch
from torch import nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.norm import RMSNorm
from txlab.nn.residual import DeepNorm, Parallel, Post, Pre, Sandwich

DIMS = Dims(dim=8, n_heads=2, head_dim=4, n_layers=1, context=8, vocab_size=10)
BRANCHES = {"attn": lambda x: 2 * x + 1, "ffn": lambda x: x * x}


def build(cls, dropout=0.0, n_layers=1, **fields):
    dims = Dims(**{**DIMS.__dict__, "dropout": dropout, "n_layers": n_layers})
    rule = cls(
        cls.Config(**fields),
        dims,
        branches=tuple(BRANCHES),
        make_norm=lambda: RMSNorm(RMSNorm.Config(), dims),
    )
    for weight in rule.parameters():
        nn.init.normal_(weight)
    return rule


def test_pre():
    rule, x = build(Pre), torch.randn(2, 3, 8)
    h = x + 2 * rule.norms["attn"](x) + 1
    torch.testing.assert_close(rule(x, BRANCHES), h + rule.norms["ffn"](h) ** 2)
    assert rule.final_norm


def test_post():
    rule, x = build(Post), torch.randn(2, 3, 8)
    h = rule.norms["attn"](x + 2 * x + 1)
    torch.testing.assert_close(rule(x, BRANCHES), rule.norms["ffn"](h + h * h))
    assert not rule.final_norm


def test_parallel_with_one_norm():
    rule, x = build(Parallel), torch.randn(2, 3, 8)
    h = rule.norms["shared"](x)
    torch.testing.assert_close(rule(x, BRANCHES), x + 2 * h + 1 + h * h)
    assert list(rule.norms) == ["shared"]


def test_parallel_with_a_norm_each():
    rule, x = build(Parallel, shared_norm=False), torch.randn(2, 3, 8)
    expected = x + 2 * rule.norms["attn"](x) + 1 + rule.norms["ffn"](x) ** 2
    torch.testing.assert_close(rule(x, BRANCHES), expected)


def test_sandwich():
    """Gemma 2: x + norm(branch(norm(x)))."""
    rule, x = build(Sandwich), torch.randn(2, 3, 8)
    h = x + rule.after["attn"](2 * rule.norms["attn"](x) + 1)
    expected = h + rule.after["ffn"](rule.norms["ffn"](h) ** 2)
    torch.testing.assert_close(rule(x, BRANCHES), expected)
    assert rule.final_norm


def test_deepnorm():
    """norm(alpha x + branch(x)); 8 layers: alpha = 16^(1/4) = 2."""
    rule, x = build(DeepNorm, n_layers=8), torch.randn(2, 3, 8)
    h = rule.norms["attn"](2 * x + 2 * x + 1)
    torch.testing.assert_close(rule(x, BRANCHES), rule.norms["ffn"](2 * h + h * h))
    assert not rule.final_norm


ALL = pytest.mark.parametrize("cls", [Pre, Post, Parallel, Sandwich, DeepNorm])


def test_layer_scale_by_hand():
    rule, x = build(Pre, layer_scale=0.1), torch.randn(2, 3, 8)
    first, second = rule.scales["attn"].weight, rule.scales["ffn"].weight
    h = x + first * (2 * rule.norms["attn"](x) + 1)
    torch.testing.assert_close(rule(x, BRANCHES), h + second * rule.norms["ffn"](h) ** 2)
    fresh = Pre(
        Pre.Config(layer_scale=1e-4),
        DIMS,
        branches=("attn",),
        make_norm=lambda: RMSNorm(RMSNorm.Config(), DIMS),
    )
    assert fresh.scales["attn"].weight.tolist() == pytest.approx([1e-4] * 8)


@ALL
def test_a_dropped_row_keeps_its_stream_and_gives_the_branch_no_gradient(cls):
    rule, still = build(cls, drop_path=0.5), build(cls)
    still.load_state_dict(rule.state_dict())
    rule.norms.requires_grad_(False)
    x = torch.randn(64, 5, 8)
    ones = torch.ones(64, 5, 8, requires_grad=True)
    torch.manual_seed(0)
    y = rule(x, {"attn": lambda h: ones + h * 0})
    without = still(x, {"attn": torch.zeros_like})
    dropped = (y - without).abs().amax((1, 2)) < 1e-6
    assert 16 < int(dropped.sum()) < 48
    y.sum().backward()
    assert torch.equal(ones.grad.abs().amax((1, 2)) == 0, dropped)


@pytest.mark.parametrize("fields", [{"layer_scale": 0.0}, {"drop_path": 1.0}, {"drop_path": -0.1}])
def test_bad_fields_are_refused(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        Pre.Config(**fields)


@ALL
def test_dropout_hits_branches_only_and_only_in_training(cls):
    rule, still = build(cls, dropout=0.5), build(cls)
    still.load_state_dict(rule.state_dict())
    x = torch.randn(4, 64, 8)
    assert not torch.allclose(rule(x, BRANCHES), still(x, BRANCHES))
    torch.testing.assert_close(rule.eval()(x, BRANCHES), still(x, BRANCHES))
    nothing = dict.fromkeys(BRANCHES, torch.zeros_like)
    torch.testing.assert_close(rule.train()(x, nothing), still(x, nothing))


def test_dropout_keeps_the_mean():
    rule = build(Pre, dropout=0.25)
    y = rule(torch.zeros(8, 512, 8), {"attn": torch.ones_like})
    assert y.unique().tolist() == pytest.approx([0, 4 / 3])
    assert y.mean().item() == pytest.approx(1.0, abs=0.03)
