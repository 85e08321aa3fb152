"""SGD against torch's own step and a hand-written decay, in float64."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.train.optim import SGD


@pytest.mark.parametrize("nesterov", [False, True])
def test_five_updates_equal_the_rule_written_out(nesterov):
    """v = m v + g; p = (1 - lr decay) p - lr (v, or g + m v); decay never enters v."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=True).double()
    optimizer = SGD(SGD.Config(lr=0.1, weight_decay=0.5, nesterov=nesterov)).make(model)
    wanted = {name: p.detach().clone() for name, p in model.named_parameters()}
    speed = {name: torch.zeros_like(p) for name, p in wanted.items()}
    for _ in range(5):
        for name, parameter in model.named_parameters():
            g = parameter.grad = torch.randn_like(parameter)
            speed[name] = 0.9 * speed[name] + g
            move = g + 0.9 * speed[name] if nesterov else speed[name]
            kept = 0.95 if name == "weight" else 1.0
            wanted[name] = kept * wanted[name] - 0.1 * move
        optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name], rtol=1e-12, atol=1e-12)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(RequestError, match="nesterov"):
        SGD.Config(momentum=0.0, nesterov=True)
