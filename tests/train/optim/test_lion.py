"""Lion by hand."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.train.optim import Lion


def test_two_updates_by_hand():
    """Rate 0.1, decay 0.5, from (1, 2): first signs of 0.1 g, then of 0.9 m + 0.1 g.

    g1 = (3, -7): p = 0.95 (1, 2) - 0.1 (1, -1) = (0.85, 2), m = (0.03, -0.07).
    g2 = (-0.5, 0.5): 0.9 m + 0.1 g = (-0.023, -0.013), one sign that turned and one that did not:
    p = 0.95 (0.85, 2) - 0.1 (-1, -1) = (0.9075, 2), m = 0.99 m + 0.01 g = (0.0247, -0.0643).
    """
    model = nn.Linear(2, 1, bias=False).double()
    model.weight.data.copy_(torch.tensor([[1.0, 2.0]]))
    optimizer = Lion(Lion.Config(lr=0.1, weight_decay=0.5)).make(model)
    for gradient, wanted in (([3.0, -7.0], [0.85, 2.0]), ([-0.5, 0.5], [0.9075, 2.0])):
        model.weight.grad = torch.tensor([gradient]).double()
        optimizer.step()
        torch.testing.assert_close(model.weight.data, torch.tensor([wanted]).double())
    momentum = optimizer.state[model.weight]["momentum"]
    torch.testing.assert_close(momentum, torch.tensor([[0.0247, -0.0643]]).double())


def test_impossible_betas_are_refused():
    with pytest.raises(RequestError, match="betas"):
        Lion.Config(betas=(0.9, 1.0))
