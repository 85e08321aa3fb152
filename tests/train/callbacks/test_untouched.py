"""DDP-01: a parameter that never gets a gradient is told of, by name, in one line."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from torch import nn

from tests.train.tiny_run import Run, decoder
from txlab.nn.adapter import LoRA
from txlab.train.callbacks import untouched
from txlab.train.callbacks.untouched import Untouched
from txlab.train.state import seeded


class Notes(Callback):
    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def on_note(self, trainer: Any, module: Any, text: str) -> None:
        self.said.append((module.counters.step, text))


def noted(
    folder: Path, steps: int, *, unused: bool = False, adapted: bool = False
) -> list[tuple[int, str]]:
    with seeded(3):
        model = decoder()
        if adapted:
            LoRA(LoRA.Config(r=2)).inject(model)
    if unused:
        model.value_head = nn.Linear(16, 1)
        model.frozen = nn.Linear(16, 1).requires_grad_(False)
    notes = Notes()
    Run(folder, steps, model=model, val=0, callbacks=(Untouched(), notes)).fit()
    return notes.said


def test_a_part_that_no_loss_reaches_is_told_of_at_the_end(tmp_path: Path):
    ((step, text),) = noted(tmp_path, 3, unused=True)
    assert step == 3
    assert text.startswith(
        "no gradient has reached value_head.weight, value_head.bias in 3 steps: does the loss"
    )


def test_a_long_run_tells_once_and_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(untouched, "WAIT", 2)
    assert [step for step, _ in noted(tmp_path, 4, unused=True)] == [2]


def test_a_model_that_is_wired_up_is_left_alone(tmp_path: Path):
    assert noted(tmp_path, 3) == []


@pytest.mark.parametrize("steps", [1, 2])
def test_a_fresh_adapter_is_not_accused_after_one_step(tmp_path: Path, steps: int):
    """Where B is 0, the gradient of A is."""
    assert noted(tmp_path, steps, adapted=True) == []
