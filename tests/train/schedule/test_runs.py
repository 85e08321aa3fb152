"""CKPT-02 in runs: rates of a resumed run are those of the unbroken one, for every schedule."""

import math

import pytest

import txlab
from txlab.run import build_objective, prepare_data, total_steps, training_module
from txlab.train.checkpoint import Checkpoint
from txlab.train.optim import AdamW, RoleRates
from txlab.train.schedule import Linear, schedule

LR = 0.01


@pytest.mark.parametrize("name", list(schedule.options))
def test_resumed_at_3_5_and_12(run, name):
    """Warm-up of 5 to the peak exactly, then to step 20; the log has optim.lr times the factor."""
    fields = {"schedule": schedule.option(name).config(warmup=5), "val": 0, "keep_last": 99}
    fields["optim"] = AdamW.Config(lr=LR, role_lr=RoleRates(embed=0.5))
    whole = run(20, save_every=1, **fields)
    rates = whole.log.column("lr")
    made = schedule.build(fields["schedule"], total_steps=20)
    assert rates == [LR * made.factor(update) for update in range(20)]
    assert rates[4] == LR
    for at in (3, 5, 12):
        saved = Checkpoint(whole.folder / "checkpoints" / f"step-{at:06d}")
        resumed = run(20, resume=saved, **fields)
        assert resumed.log.column("lr") == rates[at:], at
        last = {group["lr"] for group in resumed.module.optimizer.param_groups}
        assert last == {rates[-1], 0.5 * rates[-1]}


def test_a_warm_up_in_tokens(run):
    """Steps of 4 x 8 tokens: 90 tokens are 3 updates, after which the rate is the peak."""
    config = Linear.Config(warmup=None, warmup_tokens=90, min_ratio=1.0).in_updates(32.0)
    done = run(5, schedule=config, optim=AdamW.Config(lr=LR), val=0)
    assert done.log.column("lr") == pytest.approx([LR / 3, 2 * LR / 3, LR, LR, LR])
    assert done.log.column("tokens") == [32, 64, 96, 128, 160]


def test_a_warm_up_in_tokens_of_a_composed_run():
    """The rows of the task are short of the context: steps hold what its facts say."""
    words = (
        "data=copy data.batch_size=8 model.dim=16 model.n_layers=1 model.n_heads=1 train.steps=9"
    )
    words += " schedule=constant schedule.warmup=null schedule.warmup_tokens=1000"
    config = txlab.compose(words.split())
    data = prepare_data(config)
    config.model.vocab_size = data.tokenizer.vocab_size
    goal = build_objective(config, data)
    module = training_module(config, txlab.build(config), goal, data, total_steps(config, data))
    tokens = data.step_rows * data.row_tokens
    factors = [module.update.schedule.factor(update) for update in range(9)]
    assert factors[math.ceil(1000 / tokens) - 1] == 1.0
    assert factors[math.ceil(1000 / tokens) - 2] < 1.0
