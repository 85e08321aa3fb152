"""Adafactor against the classes of torch and transformers, and expert by expert."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.testing import tiny
from txlab.train.optim import Adafactor


def layer(seed=0):
    with tiny.seeded(seed):
        return nn.Linear(6, 4).double()


def run(model, optimizer, steps=6):
    for step in range(steps):
        for i, p in enumerate(model.parameters()):
            p.grad = tiny.floats(*p.shape, seed=10 * step + i, dtype=torch.float64)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_is_that_of_pytorch_where_its_cap_does_not_bind():
    """lr below 1 / sqrt(t), no decay of vectors: the same rule but for where epsilon stands."""
    ours, theirs = layer(), layer()
    groups = [{"params": [theirs.weight]}, {"params": [theirs.bias], "weight_decay": 0.0}]
    peer = torch.optim.Adafactor(groups, lr=0.05, weight_decay=0.2)
    found = run(ours, Adafactor(Adafactor.Config(lr=0.05, weight_decay=0.2)).make(ours))
    torch.testing.assert_close(found, run(theirs, peer), rtol=1e-10, atol=1e-12)
    state = Adafactor(Adafactor.Config()).make(ours).state
    assert not state


@pytest.mark.parametrize("scaled", [True, False])
def test_is_that_of_transformers_at_any_rate(scaled):
    """Theirs has no cap with `relative_step=False`; its decay multiplies another rate: none."""
    theirs = pytest.importorskip("transformers.optimization").Adafactor
    config = Adafactor.Config(lr=0.7, weight_decay=0.0, scale_parameter=scaled)
    one, two = layer(), layer()
    peer = theirs(two.parameters(), lr=0.7, relative_step=False, scale_parameter=scaled)
    found = run(one, Adafactor(config).make(one))
    torch.testing.assert_close(found, run(two, peer), rtol=1e-6, atol=1e-7)


def test_a_matrix_keeps_a_row_and_a_column():
    model = layer()
    optimizer = Adafactor(Adafactor.Config()).make(model)
    run(model, optimizer, 1)
    kept = {k: v.numel() for k, v in optimizer.state[model.weight].items() if k != "step"}
    assert kept == {"row": 4, "column": 6}


def test_each_of_stacked_matrices_moves_as_it_would_alone():
    class Stack(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.weight = nn.Parameter(value.clone())

    value = tiny.floats(3, 4, 5, dtype=torch.float64) * torch.tensor([0.1, 1.0, 7.0])[:, None, None]
    gradient = tiny.floats(3, 4, 5, seed=1, dtype=torch.float64)
    stack = Stack(value)
    stack.weight.grad = gradient
    Adafactor(Adafactor.Config()).make(stack).step()
    for i in range(3):
        alone = Stack(value[i])
        alone.weight.grad = gradient[i]
        Adafactor(Adafactor.Config()).make(alone).step()
        torch.testing.assert_close(stack.weight[i], alone.weight)


@pytest.mark.parametrize("name", ["min_rms", "clip_threshold", "eps", "decay_rate"])
def test_impossible_fields_are_refused(name):
    with pytest.raises(RequestError, match=name):
        Adafactor.Config(**{name: 0.0})
