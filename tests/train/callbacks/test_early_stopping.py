"""Early stopping: by patience, with a checkpoint and a reason, the same after a resume."""

from types import SimpleNamespace
from typing import Any

import pytest

from txlab.core.errors import RequestError, RunError
from txlab.train import checkpoint
from txlab.train.callbacks.early_stopping import EarlyStopping
from txlab.train.report import lines


def watched(values, **fields):
    """At which of these held-out losses it stops, from 1; None: at none."""
    stopping: Any = EarlyStopping(**fields)
    for step, value in enumerate(values, 1):
        trainer = SimpleNamespace(should_stop=False)
        module = SimpleNamespace(
            last_row={"val/loss": value},
            counters=SimpleNamespace(step=step),
            total_steps=99,
            stopped=None,
            tell=lambda *_: None,
        )
        stopping.on_validation_end(trainer, module)
        if trainer.should_stop:
            return step, module.stopped
    return None


@pytest.mark.parametrize(
    ("values", "fields", "step"),
    [
        ([3.0, 2.0, 2.0, 2.1], {"patience": 2}, 4),
        ([3.0, 2.0, 2.5, 1.9, 2.0, 1.95], {"patience": 2}, 6),
        ([3.0, 2.95, 2.9], {"patience": 2, "min_delta": 0.2}, 3),
        ([0.1, 0.5, 0.4], {"patience": 1, "mode": "max"}, 3),
        ([3.0, float("nan"), 1.0], {"patience": 9}, 2),
    ],
)
def test_when_it_stops(values, fields, step):
    found = watched(values, **fields)
    assert found is not None
    assert found[0] == step


def test_an_improving_run_goes_on():
    assert watched([5.0, 4.0, 3.0, 2.0, 1.0], patience=1) is None


def stuck(run, **fields):
    """A run that never gets better by as much as it has to."""
    stopping = EarlyStopping(patience=2, min_delta=100.0)
    return run(30, val_every=2, callbacks=(stopping,), **fields)


def test_a_run_ends_with_a_checkpoint_and_a_reason(run):
    done = stuck(run)
    step = done.module.counters.step
    assert step < 30
    assert checkpoint.find(done.folder).step == step
    assert done.log.rows[-1]["step"] == step
    assert "val/loss" in done.log.rows[-1]
    assert f"at step {step}: val/loss is not better than" in done.module.stopped
    summary = {"stopped": done.module.stopped, "item": "token", "run_dir": "", "updates": 1}
    summary |= {"step": step, "tokens": 1, "supervised": 1, "parameters": 1}
    assert ("stopped", done.module.stopped) in lines(summary)


def test_a_resumed_run_ends_where_the_unbroken_one_does(run):
    whole = stuck(run, save_every=1, keep_last=99)
    end = whole.module.counters.step
    saved = checkpoint.Checkpoint(whole.folder / "checkpoints" / f"step-{end - 1:06}")
    assert stuck(run, resume=saved).module.counters.step == end


def test_what_it_refuses(run):
    with pytest.raises(RequestError, match=r"mode=up: expected min or max"):
        EarlyStopping(mode="up")
    with pytest.raises(RequestError, match=r"patience=0"):
        EarlyStopping(patience=0)
    with pytest.raises(RunError, match=r"monitor=val/nothing: .* it has val/bits_per_byte"):
        run(1, callbacks=(EarlyStopping("val/nothing"),))
