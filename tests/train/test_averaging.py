"""Averaged weights are what is evaluated and saved; training goes on from its own, bit for bit."""

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

from tests.train.tiny_run import Run, rows_of
from txlab.core.errors import RequestError
from txlab.train import checkpoint
from txlab.train.averaging import EMA, Averaging
from txlab.train.optim import AdamW, ScheduleFree

OPTIM = AdamW.Config(lr=1e-2)


class Trail(Callback):
    """The weights that train, after each step."""

    def __init__(self):
        self.steps = []

    def on_step(self, trainer, module):
        self.steps.append([p.detach().clone() for p in module.model.parameters()])


def saved(run):
    return dict(checkpoint.find(run.folder).weights())


@pytest.mark.parametrize(("every", "warmup"), [(1, True), (1, False), (2, True)])
def test_ema_is_the_hand_recursion(run, every, warmup):
    trail = Trail()
    start = Run(run().folder / "start", 5).module.model
    done = run(
        5, optim=OPTIM, ema=0.9, ema_every=every, ema_warmup=warmup, callbacks=(trail,), val=0
    )
    shadows = [p.detach().double() for p in start.parameters()]
    for update in range(1, 6):
        if update % every:
            continue
        n = update // every
        decay = min(0.9, (1 + n) / (10 + n)) if warmup else 0.9
        new = trail.steps[update - 1]
        shadows = [decay * s + (1 - decay) * w.double() for s, w in zip(shadows, new, strict=True)]
    names = [name for name, _ in done.module.model.named_parameters()]
    for name, shadow in zip(names, shadows, strict=True):
        torch.testing.assert_close(saved(done)[name].double(), shadow, rtol=1e-5, atol=1e-6)


def test_training_does_not_change_by_it(run):
    with_it, without = Trail(), Trail()
    run(4, optim=OPTIM, ema=0.9, callbacks=(with_it,), val_every=1)
    run(4, optim=OPTIM, callbacks=(without,), val_every=1)
    for one, two in zip(with_it.steps, without.steps, strict=True):
        assert all(map(torch.equal, one, two))


def figures(run, weights):
    """Held-out loss of these weights."""
    model, total, count = run.module.model, 0.0, 0
    model.load_state_dict(weights)
    for i in range(2):
        batch = rows_of(10_000 + i, rows=3)
        with torch.no_grad():
            loss = run.module.objective(model.eval(), batch)
        total, count = total + float(loss.sum), count + int(loss.count)
    return total / count


@pytest.mark.parametrize("kind", ["ema", "schedule_free"])
def test_the_average_is_what_is_evaluated_and_saved(run, kind):
    fields = {"optim": ScheduleFree.Config(lr=1e-2)} if kind == "schedule_free" else {"ema": 0.8}
    done = run(5, **{"optim": OPTIM, **fields})
    file, trained = saved(done), done.weights()
    assert any(not torch.equal(file[name], trained[name]) for name in file)
    row = done.log.rows[-1]
    full = {name: file.get(name, tensor) for name, tensor in trained.items()}
    tied = {**full, "head.weight": full["embed.weight"]}
    assert row["val/loss"] == pytest.approx(figures(done, tied), rel=1e-5)
    assert row["val/loss"] != pytest.approx(figures(done, trained), rel=1e-5)


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
@pytest.mark.parametrize("kind", ["ema", "schedule_free"])
def test_a_resumed_run_is_the_unbroken_one(run, kind, precision):
    fields = {"optim": ScheduleFree.Config(lr=1e-2)} if kind == "schedule_free" else {"ema": 0.8}
    fields = {"optim": OPTIM, "precision": precision, "val_every": 2, **fields}
    whole = run(6, save_every=3, keep_last=9, **fields)
    half = checkpoint.Checkpoint(whole.folder / "checkpoints" / "step-000003")
    resumed = run(6, resume=half, **fields)
    one, two = saved(whole), saved(resumed)
    assert all(torch.equal(one[name], two[name]) for name in one)
    for name, tensor in resumed.weights().items():
        assert torch.equal(tensor, whole.weights()[name]), name
    for column in ("train/loss", "val/loss"):
        found = resumed.log.column(column)
        assert found == whole.log.column(column)[-len(found) :]


def test_a_step_without_an_update_is_not_averaged(run):
    from tests.train.tiny_run import Poison

    plain = run(3, optim=OPTIM, ema=0.9, make=lambda s: [rows_of(s + (s > 1))], val=0)
    broken = run(4, optim=OPTIM, ema=0.9, objective=Poison({2}), val=0)
    assert plain.module.counters.updates == broken.module.counters.updates == 3
    assert broken.module.averaging.averages


def test_the_weights_come_back_bit_for_bit():
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters())
    ema = EMA(optimizer, 0.5)
    before = [p.detach().clone() for p in model.parameters()]
    for shadow in ema.shadows:
        shadow.add_(1.0)
    averaging = Averaging(model, ema)
    with averaging.evaluated():
        assert torch.equal(model.weight, before[0] + 1)
    assert all(map(torch.equal, before, model.parameters()))


def test_two_averages_are_refused(tmp_path):
    with pytest.raises(RequestError, match=r"train\.ema=0\.9: this optimizer keeps an average"):
        Run(tmp_path, optim=ScheduleFree.Config(), ema=0.9)
