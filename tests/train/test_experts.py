"""Mixtures of experts in training: losses in the log, a bias moved once a step."""

from typing import Any

import pytest
import torch

from tests.train.tiny_run import Poison, decoder, rows_of, split
from txlab.nn.ffn import MoE
from txlab.nn.pattern import Pattern
from txlab.objectives.objective import Loss
from txlab.train.state import seeded

BIASED = MoE.Config(n_experts=4, top_k=1, hidden=8, balance_loss=0.0, bias_rate=0.125)


def model(ffn: MoE.Config = BIASED, **fields: Any) -> Any:
    with seeded(5):
        return decoder(ffn=ffn, **fields)


def biases(run: Any) -> list[torch.Tensor]:
    return [tensor for name, tensor in run.weights().items() if name.endswith("router.bias")]


def test_the_bias_moves_once_a_step_by_the_loads_of_all_micro_batches(run):
    whole = run(3, model=model())
    assert len(biases(whole)) == 2
    assert all(set(bias.abs().tolist()) <= {0.0, 0.125, 0.25, 0.375} for bias in biases(whole))
    assert all(bias.any() for bias in biases(whole))
    for sizes in [(3, 1), (1, 1, 2)]:
        parts = run(3, model=model(), make=lambda step, sizes=sizes: split(rows_of(step), *sizes))
        for mine, theirs in zip(biases(parts), biases(whole), strict=True):
            assert torch.equal(mine, theirs)


class Spoilt(Poison):
    """The same with the loads handed on."""

    def forward(self, model, batch):
        loss = super().forward(model, batch)
        load = torch.tensor([4.0, 0.0, 0.0, 0.0])
        return Loss(loss.sum, loss.count, loss.metrics, (load, load))


def test_a_step_without_update_moves_no_bias(run):
    skipped = run(2, model=model(), objective=Spoilt([1]), skip_nonfinite=True)
    for bias in biases(skipped):
        assert bias.tolist() == [-0.125, 0.125, 0.125, 0.125]
    assert skipped.module.counters.skipped == 1


def test_losses_are_in_the_loss_and_in_the_log(run):
    config = MoE.Config(n_experts=4, top_k=2, hidden=8, balance_loss=0.5, z_loss=0.01)
    pattern = Pattern(ffn=["moe", "mlp"])
    once = run(2, model=model(config, pattern=pattern))
    for row in once.log.rows:
        parts = row["train/nll"] + row["train/balance"] + row["train/router_z"]
        assert row["train/loss"] == pytest.approx(parts, rel=1e-5)
        assert row["train/balance"] >= 0.49  # 0.5 times 1 for an even load, of one layer
        assert 1 <= row["train/max_load"] <= 4
    again = run(2, model=model(config, pattern=pattern), make=lambda step: [rows_of(step)] * 4)
    for name in ("train/loss", "train/balance", "train/router_z", "train/max_load", "grad_norm"):
        assert again.log.column(name) == pytest.approx(once.log.column(name), rel=1e-5)


def test_half_the_coefficient_is_half_the_loss(run):
    rows = []
    for weight in (0.5, 0.25):
        config = MoE.Config(n_experts=4, hidden=8, balance_loss=weight)
        rows.append(run(1, model=model(config), val=0).log.rows[0])
    assert rows[0]["train/balance"] == pytest.approx(2 * rows[1]["train/balance"], rel=1e-5)
