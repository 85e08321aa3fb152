"""Residual rules against the same thing written by hand."""

import pytest
import torch
from torch import nn

from txlab.core.config import Dims
from txlab.nn.norm import RMSNorm
from txlab.nn.residual import Parallel, Post, Pre

DIMS = Dims(dim=8, n_heads=2, head_dim=4, n_layers=1, context=8, vocab_size=10)
BRANCHES = {"attn": lambda x: 2 * x + 1, "ffn": lambda x: x * x}


def build(cls, dropout=0.0, **fields):
    dims = Dims(**{**DIMS.__dict__, "dropout": dropout})
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


@pytest.mark.parametrize("cls", [Pre, Post, Parallel])
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
