"""One optimizer step: token-exact whatever the split, clipped once, skipped when it must be."""

import math
from typing import ClassVar

import pytest
import torch
from torch import nn

from tests.train.tiny_run import (
    CONTEXT,
    VOCAB,
    Given,
    Poison,
    Run,
    decoder,
    given_nll,
    rows_of,
    split,
    weight_one,
)
from txlab.core.errors import RunError
from txlab.data.batch import IGNORE


def test_a_step_is_the_same_however_it_is_split(run):
    """GA-01: loss, norm and weights of (3+1), (1+1+2) and (4) rows with uneven targets."""
    whole = run(3)
    for sizes in [(3, 1), (1, 1, 2)]:
        parts = run(3, make=lambda step, sizes=sizes: split(rows_of(step), *sizes))
        for name in ("train/loss", "train/nll", "grad_norm", "tokens", "val/loss", "lr", "updates"):
            assert parts.log.column(name) == pytest.approx(whole.log.column(name), rel=1e-5)
        for name, tensor in parts.weights().items():
            torch.testing.assert_close(tensor, whole.weights()[name], rtol=1e-4, atol=1e-5)


def test_worked_numbers_of_ga_01(run):
    micro = [given_nll(1, 4.0), given_nll(9, 1.0)]
    done = run(1, make=lambda step: micro, model=weight_one(), objective=Given(), val=0)
    assert done.log.column("train/loss") == pytest.approx([1.3])
    assert done.log.column("grad_norm") == pytest.approx([1.3])  # d/dw of w * 1.3


def test_the_logged_norm_is_the_whole_gradients_before_clipping(run):
    """GA-06: accumulate 4, clip far below the norm."""
    done = run(1, make=lambda step: split(rows_of(step), 1, 1, 1, 1), clip=1e-3)
    torch.manual_seed(0)
    reference = run(1, clip=None)
    assert done.log.column("grad_norm") == pytest.approx(
        reference.log.column("grad_norm"), rel=1e-5
    )


def test_clipping_scales_the_whole_gradient(run):
    seen = []

    class Watch:
        def __init__(self, optimizer):
            self.handle = optimizer.register_step_pre_hook(self)

        def __call__(self, optimizer, args, kwargs):
            grads = [p.grad for g in optimizer.param_groups for p in g["params"]]
            seen.append(nn.utils.get_total_norm(grads).item())

    for clip in (0.01, 1e9):
        one = Run(run().folder / f"clip{clip}", 1, clip=clip)
        Watch(one.module.optimizer)
        one.fit()
    assert seen[0] == pytest.approx(0.01, rel=1e-3)
    assert seen[1] == pytest.approx(one.log.column("grad_norm")[0], rel=1e-5)


def empty(step):
    batch = rows_of(step)
    batch["labels"].fill_(IGNORE)
    return [batch]


def test_a_step_without_supervised_tokens_updates_nothing_and_is_counted(run):
    done = run(4, make=lambda step: empty(step) if step == 1 else [rows_of(step)])
    assert done.log.column("updates") == [1, 1, 2, 3]
    assert done.log.column("skipped") == [0, 1, 1, 1]
    assert done.module.counters.empty == 1
    assert "train/loss" not in done.log.rows[1]
    assert all(torch.isfinite(t).all() for t in done.weights().values())


def test_a_run_without_any_update_is_an_error(run):
    with pytest.raises(RunError, match="no update in 3 steps: 3 had no supervised token"):
        run(3, make=empty)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_step_with_an_infinite_gradient_moves_nothing(run, precision):
    """PREC-02: weights, moments, learning rate and update count are those of the step before."""
    done = run(4, objective=Poison({3}), precision=precision)
    assert done.log.column("updates") == [1, 2, 2, 3]
    assert done.module.counters.skipped == 1
    rates = done.log.column("lr")
    plain = run(4, precision=precision).log.column("lr")
    assert rates == [plain[0], plain[1], plain[2], plain[2]]
    # The same as never having seen the batch of step 3.
    without = run(3, make=lambda step: [rows_of(step + (step > 1))], precision=precision)
    state = done.module.optimizer.state_dict()["state"]
    assert {int(s["step"]) for s in state.values()} == {3}
    assert done.module.counters.updates == without.module.counters.updates


def test_nonfinite_may_end_the_run(run):
    with pytest.raises(RunError, match="step 2: the gradient's norm is"):
        run(3, objective=Poison({2}), skip_nonfinite=False)


def test_intervals_count_optimizer_steps(run):
    """GA-05: accumulate 4; validation, rows and saves every so many steps; the end once."""
    from lightning.pytorch import Callback

    class Count(Callback):
        steps: ClassVar[list[int]] = []

        def on_validation_start(self, trainer, module):
            self.steps.append(module.counters.step)

    done = run(
        10,
        make=lambda step: split(rows_of(step), 1, 1, 1, 1),
        val_every=4,
        save_every=5,
        keep_last=9,
        callbacks=(Count(),),
    )
    assert Count.steps == [4, 8, 10]
    assert [int(row["step"]) for row in done.log.rows if "val/loss" in row] == [4, 8, 10]
    assert done.log.column("step") == list(range(1, 11))
    assert done.log.column("updates") == list(range(1, 11))
    names = sorted(path.name for path in (done.folder / "checkpoints").iterdir())
    assert names == ["step-000005", "step-000010"]
    Count.steps.clear()
    run(8, val_every=4, callbacks=(Count(),))
    assert Count.steps == [4, 8]


def test_rows_cover_the_steps_since_the_last(run):
    each, rare = run(7), run(7, log_every=3)
    assert rare.log.column("step") == [3, 6, 7]
    losses, counts = (
        each.log.column("train/loss"),
        [(rows_of(s)["labels"] >= 0).sum() for s in range(7)],
    )
    mean = sum(a * int(b) for a, b in zip(losses[:3], counts[:3], strict=True)) / int(
        sum(counts[:3])
    )
    assert rare.log.column("train/loss")[0] == pytest.approx(mean, rel=1e-6)
    assert rare.log.column("tokens") == [3 * 4 * CONTEXT, 6 * 4 * CONTEXT, 7 * 4 * CONTEXT]


def test_padding_is_no_token(run):
    """Step s has 4 rows of 8 places, 2 + s of them real in each."""

    def make(step):
        valid = (torch.arange(CONTEXT) < 2 + step).expand(4, -1)
        rows = rows_of(step)
        return [{**rows, "labels": rows["labels"].where(valid, IGNORE), "valid": valid}]

    one = run(steps=3, make=make).fit()
    assert one.log.column("tokens") == [4 * 2, 4 * (2 + 3), 4 * (2 + 3 + 4)]


def test_held_out_figures_are_token_weighted(run):
    """MET-01, on the run's own validation."""
    done = run(2)
    model, row = done.module.model.eval(), done.log.rows[-1]
    total = count = n_bytes = 0.0
    for i in range(2):
        batch = rows_of(10_000 + i, rows=3)
        logits = model.logits(model(batch["tokens"]).states)
        labels = batch["labels"]
        total += nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum"
        ).item()
        count += int((labels != IGNORE).sum())
        n_bytes += int(labels[labels != IGNORE].sum())  # token i stands for i bytes here
    assert row["val/loss"] == pytest.approx(total / count, rel=1e-5)
    assert row["val/perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert row["val/bits_per_byte"] == pytest.approx(total / math.log(2) / n_bytes, rel=1e-5)


def test_two_runs_with_one_seed_are_bit_identical(run):
    one, two, other = (run(3, dropout=0.1, seed=seed) for seed in (5, 5, 6))
    assert one.log.column("train/loss") == two.log.column("train/loss")
    assert one.log.column("train/loss") != other.log.column("train/loss")
    assert all(torch.equal(one.weights()[k], v) for k, v in two.weights().items())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
def test_compiled_blocks_keep_names_and_results(run, monkeypatch):
    from txlab.train.compiling import BACKEND, compile_blocks

    monkeypatch.setenv(BACKEND, "aot_eager")
    torch.manual_seed(0)
    plain, model = decoder(), decoder()
    model.load_state_dict(plain.state_dict())
    compile_blocks(model)
    assert list(model.state_dict()) == list(plain.state_dict())
    batch = rows_of(0)
    torch.testing.assert_close(model(batch["tokens"]).states, plain(batch["tokens"]).states)
    assert VOCAB > 0


def test_metrics_are_summed_in_float32():
    """PREC-03: 1024 ones in bf16 stay 1024."""
    from txlab.train.history import Sums

    sums = Sums()
    for _ in range(1024):
        sums.add(
            {"loss": (torch.ones((), dtype=torch.bfloat16), torch.ones((), dtype=torch.int64))}
        )
    assert sums.totals() == {"loss": (1024.0, 1024.0)}
