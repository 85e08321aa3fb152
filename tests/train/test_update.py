"""Scaled gradients (fp16): the norm is that of the true gradient, a skipped step moves nothing."""

import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision

from tests.train.tiny_run import Poison, rows_of, split
from txlab.core.errors import RunError
from txlab.train import update


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


def test_a_diverged_run_ends(run, monkeypatch):
    monkeypatch.setattr(update, "PATIENCE", 3)
    with pytest.raises(RunError, match=r"step 5: .* the 3th time in a row: the run has diverged"):
        run(9, objective=Poison({3, 4, 5, 6}))
