"""torch's `step(closure)`, in every optimizer: run with gradients on, its loss given back."""

import pytest
import torch

from tests.train.tiny_run import decoder
from txlab.train.optim import optim


@pytest.mark.parametrize("name", list(optim.options))
def test_a_step_with_a_closure_is_one_after_it(name):
    config = optim.options[name].config()
    tokens = torch.arange(12).view(2, 6) % 7
    weights = []
    for inside in (False, True):
        torch.manual_seed(0)
        model = decoder()
        optimizer = optim.build(config).make(model)
        losses: list[float] = []

        def closure(model=model, losses=losses):
            assert torch.is_grad_enabled()
            loss = model(tokens).states.sum()
            loss.backward()
            losses.append(loss.item())
            return loss

        if inside:
            assert optimizer.step(closure).item() == losses[0]
        else:
            closure()
            assert optimizer.step() is None
        assert len(losses) == 1
        weights.append([p.detach() for p in model.parameters()])
    for plain, closed in zip(*weights, strict=True):
        assert torch.equal(plain, closed)
