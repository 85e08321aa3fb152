"""AdamW: decay by shape, every trainable parameter once, the rule itself."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.nn.attention import attention
from txlab.nn.norm import norm
from txlab.train.optim import AdamW


def decoder(**parts):
    config = Decoder.Config(dim=16, n_layers=1, n_heads=2, vocab_size=11, context=8, **parts)
    return Decoder(config, config.dims())


def parts():
    yield from ({"norm": option.config()} for option in norm.options.values())
    yield from ({"attn": option.config()} for option in attention.options.values())
    yield {"tie_embeddings": False}


@pytest.mark.parametrize("fields", list(parts()), ids=str)
def test_only_matrices_decay_and_every_parameter_stands_once(fields):
    """TIE-04: zero gradients, rate 0.1, decay 0.1: vectors unchanged, matrices times 0.99."""
    model = decoder(**fields)
    optimizer = AdamW(AdamW.Config(lr=0.1, weight_decay=0.1)).make(model)
    listed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(listed) == sorted({id(p) for p in model.parameters()})
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 0.99 if parameter.ndim >= 2 else 1.0
        torch.testing.assert_close(parameter, before[name] * factor, rtol=1e-6, atol=0)


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
