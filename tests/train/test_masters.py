"""bf16-true: weights, moments and sums of gradients are float32 where it counts."""

import pytest
import torch
from torch import nn

from tests.train.tiny_run import Run, decoder, rows_of, split
from txlab.objectives.objective import Loss, Objective
from txlab.train import checkpoint
from txlab.train.masters import Masters
from txlab.train.optim import AdamW


class Ones(Objective):
    """The sum of a model's outputs on ones: its gradient is one for each row."""

    def __init__(self):
        super().__init__(Objective.Config())

    def count(self, batch):
        return torch.tensor(len(batch["tokens"]))

    def forward(self, model, batch):
        return Loss(
            model(torch.ones(len(batch["tokens"]), 1).to(model.weight)).sum(), self.count(batch)
        )


def norms(run, parts, precision):
    micro = [{"tokens": torch.zeros(1, 1)}] * parts
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    done = run(
        1,
        make=lambda step: micro,
        model=model,
        objective=Ones(),
        precision=precision,
        val=0,
        clip=None,
    )
    return done.log.column("grad_norm")[0]


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_a_thousand_equal_micro_batches_add_up(run, precision):
    """PREC-03: bfloat16 stops at 256 of 1,024, which would be a norm of 0.25."""
    assert norms(run, 1024, precision) == pytest.approx(1.0, rel=1e-3)


def small(run, precision, **fields):
    """Five steps whose updates are below what bfloat16 can tell of most weights."""
    optim = AdamW.Config(lr=1e-5, weight_decay=0.0, eps=1e-3)
    return run(5, precision=precision, optim=optim, seed=3, **fields)


def saved(run):
    return dict(checkpoint.find(run.folder).weights())


def test_every_weight_trains_as_in_float32(run):
    start = {k: v.clone() for k, v in Run(run().folder / "x", 5, seed=3).weights().items()}
    exact, half = saved(small(run, "32-true")), saved(small(run, "bf16-true"))
    for name, tensor in half.items():
        assert tensor.dtype == torch.float32
        moved, expected = tensor - start[name], exact[name] - start[name]
        assert moved.abs().max() > 0, name
        # Gradients are of rounded weights: the same moves up to a few per cent.
        assert float((moved - expected).norm() / expected.norm()) < 0.1, name


def test_the_model_has_the_rounded_masters(run):
    done = small(run, "bf16-true")
    for name, tensor in saved(done).items():
        assert torch.equal(done.weights()[name], tensor.bfloat16()), name
    moments = done.module.optimizer.state_dict()["state"].values()
    assert {m["exp_avg"].dtype for m in moments} == {torch.float32}


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_a_resumed_run_is_the_unbroken_one(run, precision):
    optim = AdamW.Config(lr=1e-4)
    whole = run(6, precision=precision, optim=optim, save_every=3, keep_last=9)
    half = checkpoint.Checkpoint(whole.folder / "checkpoints" / "step-000003")
    resumed = run(6, precision=precision, optim=optim, resume=half)
    one, two = saved(whole), saved(resumed)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert resumed.log.column("train/loss") == whole.log.column("train/loss")[3:]


def test_a_split_step_is_the_whole_one(run):
    optim = AdamW.Config(lr=1e-3, eps=1e-3)
    whole = run(2, precision="bf16-true", optim=optim)
    parts = run(2, precision="bf16-true", optim=optim, make=lambda s: split(rows_of(s), 1, 1, 2))
    assert parts.log.column("grad_norm") == pytest.approx(whole.log.column("grad_norm"), rel=1e-2)


def test_state_that_was_there_goes_to_the_masters():
    model = decoder()
    optimizer = AdamW(AdamW.Config()).make(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    masters = Masters(model.parameters())
    before = [state["exp_avg"].clone() for state in optimizer.state.values()]
    model.bfloat16()
    masters.adopt(optimizer)
    assert all(map(torch.equal, before, (s["exp_avg"] for s in optimizer.state.values())))
    assert {p.dtype for g in optimizer.param_groups for p in g["params"]} == {torch.float32}


def test_frozen_weights_have_no_master():
    model = decoder()
    model.embed.weight.requires_grad_(False)
    masters = Masters(model.parameters())
    optimizer = AdamW(AdamW.Config()).make(model)
    model.bfloat16()
    masters.adopt(optimizer)
    assert len(masters.pairs) == sum(p.requires_grad for p in model.parameters())
