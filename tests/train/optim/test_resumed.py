"""A resumed run of every optimizer is the unbroken one, bit for bit."""

import pytest
import torch

from tests.train.tiny_run import decoder
from txlab.nn.ffn import MoE
from txlab.nn.init import MuPInit
from txlab.train.checkpoint import Checkpoint
from txlab.train.optim import AdamW8bit, RoleRates, optim
from txlab.train.state import optimizer_state

EXTRA = {
    "rates": {"role_lr": RoleRates(embed=0.5, router=0.0), "layer_decay": 0.8, "scale": "mup"},
    "small": {"min_size": 64},
}


def cases():
    for name, option in optim.options.items():
        yield pytest.param(option.config(), id=name)
        yield pytest.param(option.config(**EXTRA["rates"]), id=f"{name}-rates")
    yield pytest.param(AdamW8bit.Config(**EXTRA["small"]), id="adamw_8bit-small")


def model():
    return decoder(ffn=MoE.Config(n_experts=3, bias=True), init=MuPInit.Config(base_dim=8))


@pytest.mark.parametrize("config", list(cases()))
def test_a_resumed_run_is_the_unbroken_one(run, config):
    """Weights as trained (and as averaged, where they are), moments, counts and every row."""
    whole = run(5, optim=config, model=model(), save_every=3, keep_last=9)
    half = Checkpoint(whole.folder / "checkpoints" / "step-000003")
    resumed = run(5, optim=config, model=model(), resume=half)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name
    same(optimizer_state(whole.module.optimizer), optimizer_state(resumed.module.optimizer))
    for column in ("train/loss", "val/loss", "lr", "grad_norm"):
        count = len(resumed.log.column(column))
        assert count
        assert whole.log.column(column)[-count:] == resumed.log.column(column), column


def same(one, two):
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert one.dtype is two.dtype
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            same(one[key], two[key])
    else:
        assert one == two
