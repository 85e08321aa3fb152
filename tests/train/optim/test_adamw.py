"""AdamW: decay by shape, every trainable parameter once, the rule itself."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.train.optim import AdamW


@pytest.mark.parametrize("fused", [True, False])
def test_the_first_update_is_the_rate_in_the_gradients_direction(fused):
    """Bias-corrected moments make the first update -lr * sign(g), after decay."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    config = AdamW.Config(lr=0.1, weight_decay=0.5, fused=fused)
    optimizer = AdamW(config).make(model)
    model.weight.grad = torch.tensor([[3.0, -7.0]])
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[0.85, 1.05]]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": 0.0}, "lr=0.0 of option 'adamw': expected a learning rate above 0"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"weight_decay": -1.0}, "weight_decay"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(RequestError, match=message):
        AdamW.Config(**fields)
