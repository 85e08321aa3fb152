"""GA-05 with its values: intervals count optimizer steps, whatever micro-batches each has."""

from typing import ClassVar

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

from tests.train.tiny_run import Run
from txlab.objectives.objective import Loss, Objective
from txlab.train.checkpoint import complete
from txlab.train.schedule import Linear


class Counted(Objective):
    """Counts the micro-batches that it is asked about."""

    seen: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__(Objective.Config())

    def count(self, batch):
        return torch.tensor(len(batch["tokens"]))

    def forward(self, model, batch):
        if model.training:
            Counted.seen += 1
        return Loss(model(batch["tokens"][:, :1].float()).square().sum(), self.count(batch))


class Places(Callback):
    """Micro-batches seen so far at each validation, and how often the weights have moved."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int, int]] = []

    def on_validation_start(self, trainer, pl_module) -> None:
        counters = pl_module.counters
        self.places.append((Counted.seen, counters.step, counters.updates))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Run, Places]]:
    """200 steps, each of 1 or 8 micro-batches; validation and a save every 100; warm-up of 50."""
    done = {}
    for accumulate in (1, 8):
        Counted.seen, places = 0, Places()
        micro = {"tokens": torch.ones(1, 8, dtype=torch.long), "labels": torch.ones(1, 8)}
        one = Run(
            tmp_path_factory.mktemp("run"),
            200,
            make=lambda step, n=accumulate, micro=micro: [micro] * n,
            model=nn.Linear(1, 1, bias=False),
            objective=Counted(),
            schedule=Linear.Config(warmup=50),
            val_every=100,
            save_every=100,
            keep_last=9,
            callbacks=(places,),
        )
        done[accumulate] = one.fit(), places
    return done


def test_validation_and_saves_come_at_optimizer_steps(runs):
    assert runs[8][1].places == [(800, 100, 100), (1600, 200, 200)]
    assert runs[1][1].places == [(100, 100, 100), (200, 200, 200)]
    for one, _ in runs.values():
        assert [found.step for found in complete(one.folder / "checkpoints")] == [100, 200]
        assert [row["step"] for row in one.log.rows if "val/loss" in row] == [100, 200]


def test_there_are_exactly_as_many_updates_as_steps(runs):
    for one, _ in runs.values():
        assert one.log.column("updates") == list(range(1, 201))


def test_the_rate_of_a_step_is_the_same(runs):
    rates = runs[8][0].log.column("lr")
    assert rates == runs[1][0].log.column("lr")
    assert rates[49] == max(rates) == 1e-3
    assert rates[:50] == pytest.approx([1e-3 * step / 50 for step in range(1, 51)])
