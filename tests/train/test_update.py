"""Scaled gradients (fp16): the norm is that of the true gradient, a skipped step moves nothing."""

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.plugins.precision import MixedPrecision

from tests.train.tiny_run import Given, Poison, given_nll, rows_of, split, weight_one
from txlab.core.errors import RunError
from txlab.train.checkpoint import Checkpoint
from txlab.train.optim import SGD
from txlab.train.schedule import Constant


def scaled(scale):
    """fp16 with a gradient scaler on the CPU; by itself Lightning would silently take bf16."""
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=scale))
    assert plugin.scaler is not None
    return {"plugins": [plugin], "precision": None}


def test_the_norm_is_of_unscaled_gradients_and_clipping_too(run):
    """GA-06 (b): scaler 65536, accumulate 4."""
    plain = run(3, clip=0.05)
    half = run(
        3, clip=0.05, make=lambda step: split(rows_of(step), 1, 1, 1, 1), trainer=scaled(65536.0)
    )
    assert half.log.column("grad_norm") == pytest.approx(plain.log.column("grad_norm"), rel=2e-2)
    for name, tensor in half.weights().items():
        torch.testing.assert_close(tensor, plain.weights()[name], rtol=0, atol=5e-3)


def test_worked_numbers_under_a_scaler(run):
    """GA-06 (b): GA-01's micro-batches, scale 65536, most 1.0: the norm is 1.3, the step -0.1."""
    micro = [given_nll(1, 4.0), given_nll(9, 1.0)]
    done = run(
        1,
        make=lambda step: micro,
        model=weight_one(),
        objective=Given(),
        optim=SGD.Config(lr=0.1, weight_decay=0.0, momentum=0.0),
        schedule=Constant.Config(warmup=0),
        clip=1.0,
        val=0,
        trainer=scaled(65536.0),
    )
    assert done.log.column("grad_norm") == pytest.approx([1.3], rel=1e-5)
    assert done.log.column("train/loss") == pytest.approx([1.3])
    assert float(done.weights()["weight"]) == pytest.approx(0.9, rel=1e-5)


def test_an_overflow_skips_the_update_and_lowers_the_scale(run):
    """PREC-02: at step 2 the gradient is infinite."""
    trainer = scaled(1024.0)
    done = run(4, objective=Poison({2}), trainer=trainer)
    assert done.log.column("updates") == [1, 1, 2, 3]
    assert done.module.counters.skipped == 1
    assert trainer["plugins"][0].scaler.get_scale() == 512.0
    rates = done.log.column("lr")
    assert rates[1] == rates[2]
    assert done.log.column("grad_norm")[0] > 0
    assert "grad_norm" not in done.log.rows[1]


def test_an_overflow_moves_neither_weights_nor_moments(run):
    """PREC-02 in full: step 3 of 4, under the scaler."""
    seen = []

    class Snapshot(Callback):
        def on_step(self, trainer, module):
            state = module.optimizer.state_dict()["state"]
            moments = [value.clone() for one in state.values() for value in one.values()]
            weights = [p.detach().clone() for p in module.model.parameters()]
            seen.append((weights, moments, module.counters.updates))

    done = run(4, objective=Poison({3}), trainer=scaled(1024.0), callbacks=(Snapshot(),))
    (w2, m2, u2), (w3, m3, u3), (w4, _, u4) = seen[1:]
    assert all(map(torch.equal, w2, w3))
    assert all(map(torch.equal, m2, m3))
    assert not all(map(torch.equal, w3, w4))
    assert (u2, u3, u4) == (2, 2, 3)
    rates = done.log.column("lr")
    assert rates[2] == rates[3]


def test_the_scale_goes_on_after_a_resume(run, tmp_path):
    """Scale, growth and weights of a run stopped at step 3 are those of the unbroken one."""
    whole, part = scaled(1024.0), scaled(1024.0)
    whole["plugins"][0].scaler.set_growth_interval(2)
    part["plugins"][0].scaler.set_growth_interval(2)
    unbroken = run(6, objective=Poison({2}), trainer=whole, save_every=3, keep_last=9)
    saved = Checkpoint(unbroken.folder / "checkpoints" / "step-000003")
    assert saved.state()["scaler"]["scale"] == 512.0
    resumed = run(6, resume=saved, trainer=part)
    assert part["plugins"][0].scaler.state_dict() == whole["plugins"][0].scaler.state_dict()
    for name, tensor in resumed.weights().items():
        assert torch.equal(tensor, unbroken.weights()[name]), name


def test_a_diverged_run_ends(run):
    with pytest.raises(RunError, match=r"step 5: .* all of the last 3 steps: the run has diverged"):
        run(9, objective=Poison({3, 4, 5, 6}), max_skipped=3)
    done = run(9, objective=Poison({2, 3, 5, 6}), max_skipped=3)
    assert done.module.counters.skipped == 4


def test_skips_in_a_row_are_counted_across_a_resume(run):
    first = run(4, objective=Poison({3, 4}), max_skipped=3)
    saved = Checkpoint(first.folder / "checkpoints" / "step-000004")
    with pytest.raises(RunError, match=r"step 5: .* all of the last 3 steps"):
        run(9, objective=Poison({1}), max_skipped=3, resume=saved)
