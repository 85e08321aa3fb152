"""Schedule-free AdamW against its recursion in three sequences, and the library of its authors."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.testing import tiny
from txlab.train.optim import ScheduleFree

RATES = [0.02, 0.04, 0.1, 0.1, 0.1, 0.05, 0.01, 0.0, 0.03]


def layer():
    with tiny.seeded(0):
        return nn.Linear(3, 2).double()


def gradient(parameter, step):
    """Of a loss that depends on where it is taken."""
    noise = tiny.floats(*parameter.shape, seed=step, dtype=torch.float64)
    return parameter.detach() ** 3 - 0.3 + noise


def test_is_the_published_recursion():
    """Algorithm 1 in x, y and z, with decay at y and bias correction of the second moment."""
    first, second, decay = 0.9, 0.99, 0.2
    model = layer()
    optimizer = ScheduleFree(ScheduleFree.Config(lr=0.1, weight_decay=decay)).make(model)
    x = {name: p.detach().clone() for name, p in model.named_parameters()}
    z = {name: value.clone() for name, value in x.items()}
    v = {name: torch.zeros_like(value) for name, value in x.items()}
    weight = 0.0
    for step, lr in enumerate(RATES, 1):
        weight += lr**2
        for name, p in model.named_parameters():
            y = (1 - first) * z[name] + first * x[name]
            torch.testing.assert_close(p.detach(), y, rtol=1e-12, atol=1e-12)
            g = gradient(y, step)
            p.grad = g.clone()
            v[name] = second * v[name] + (1 - second) * g**2
            move = g / ((v[name] / (1 - second**step)).sqrt() + 1e-8)
            move += decay * y if name == "weight" else 0
            z[name] = z[name] - lr * move
            share = lr**2 / weight
            x[name] = (1 - share) * x[name] + share * z[name]
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        averages = {id(p): value for p, value in optimizer.averaged()}
        for name, p in model.named_parameters():
            torch.testing.assert_close(averages[id(p)], x[name], rtol=1e-11, atol=1e-12)


def test_is_that_of_its_authors_under_a_constant_rate():
    theirs = pytest.importorskip("schedulefree").AdamWScheduleFree
    one, two = layer(), layer()
    optimizer = ScheduleFree(ScheduleFree.Config(lr=0.05, weight_decay=0.0)).make(one)
    peer = theirs(two.parameters(), lr=0.05, betas=(0.9, 0.99))
    peer.train()
    for step in range(8):
        for p, q in zip(one.parameters(), two.parameters(), strict=True):
            p.grad, q.grad = gradient(p, step), gradient(q, step)
        optimizer.step()
        peer.step()
        for p, q in zip(one.parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)
    peer.eval()
    for p, average in optimizer.averaged():
        assert not torch.equal(p, average)
    for (_, average), q in zip(optimizer.averaged(), two.parameters(), strict=True):
        torch.testing.assert_close(average, q.detach(), rtol=1e-11, atol=1e-12)


def test_asking_for_averages_changes_nothing_and_before_the_first_update_there_are_none():
    model = layer()
    optimizer = ScheduleFree(ScheduleFree.Config()).make(model)
    assert optimizer.averaged() == []
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    before = model.weight.detach().clone()
    assert [p for p, _ in optimizer.averaged()] == [model.weight]
    assert torch.equal(model.weight, before)


def test_a_rate_of_zero_from_the_start_moves_nothing():
    model = layer()
    optimizer = ScheduleFree(ScheduleFree.Config()).make(model)
    before = model.weight.detach().clone()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    assert torch.equal(model.weight, before)


def test_a_first_beta_of_zero_is_refused():
    with pytest.raises(RequestError, match="betas"):
        ScheduleFree.Config(betas=(0.0, 0.99))
