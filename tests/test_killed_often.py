"""CKPT-03: one run, killed again and again, at random moments, most of them while it saves."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import killable
from tests.test_killed import equal, rows
from txlab.train import checkpoint

TEXT = "\n\n".join(f"Line {i}: {i * 7 % 13} {'word ' * (i % 9)}jumps." for i in range(150))
RUN = [
    *("model.dim=32", "model.n_layers=2", "model.n_heads=2", "model.context=16", "trainer=cpu"),
    *("model.dropout=0.1", "tokenizer.vocab_size=300", "data.batch_size=4", "optim.lr=0.01"),
    *("train.log_every=1", "train.val_every=9", "train.val_batches=1", "train.pictures=false"),
]
SAVING = ["train.save_every=1", "train.keep_best=1", "train.keep_every=30"]


def newest(run: Path) -> int:
    """Step of the newest checkpoint, which loads whole; -1 where there is none."""
    found = checkpoint.complete(run / "checkpoints")
    if not found:
        return -1
    found[-1].verify_all()
    assert found[-1].state()["counters"]["step"] == found[-1].step
    assert found[-1].weights()
    return found[-1].step


def life(words: list[str], run: Path, draw: random.Random) -> None:
    """Start the run, and kill it: as it starts, between two saves, or while it saves."""
    folder, before = run / "checkpoints", newest(run)
    process = killable.start(words)

    def wait(until: Callable[[], Any]) -> float:
        begin = time.monotonic()
        while time.monotonic() < begin + 120 and process.is_alive() and not until():
            time.sleep(0.001)
        return time.monotonic() - begin

    def saved(n: int) -> bool:
        found = checkpoint.complete(folder)
        return bool(found) and found[-1].step >= before + n

    kind = draw.random()
    if kind < 0.2:
        time.sleep(draw.uniform(0.0, 1.5))
    else:
        wait(lambda: saved(1))
        one_step = wait(lambda: saved(2))
        if kind < 0.6:
            time.sleep(draw.uniform(0.0, 2.0) * one_step)
        else:
            wait(lambda: list(folder.glob(".tmp-*")))
            time.sleep(draw.uniform(0.0, 0.3) * one_step)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL, "the run has ended by itself"


def unbroken(words: list[str]) -> None:
    """A life to the end. Not in this process: its checks of shapes draw random numbers."""
    process = killable.start(words)
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize(
    ("kills", "steps"), [(5, 40), pytest.param(50, 400, marks=pytest.mark.slow)]
)
def test_however_often_it_is_killed_it_ends_in_the_same_weights(tmp_path, kills, steps):
    (tmp_path / "text.txt").write_text(TEXT)
    words = [*RUN, f"data.path={tmp_path}/text.txt", f"data.cache_dir={tmp_path}/cache"]
    words += [f"train.steps={steps}"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    unbroken([*words, f"run_dir={whole}"])
    draw, saving, died = random.Random(kills), 0, []
    often = [*words, *SAVING, f"run_dir={cut}", "resume=auto"]
    for _ in range(kills):
        life(often, cut, draw)
        died.append(newest(cut))
        saving += bool(list((cut / "checkpoints").glob(".tmp-*")))
    print(f"{kills} kills, {saving} of them while saving, newest checkpoints {died}")
    assert died == sorted(died)
    assert -1 < died[-1] < steps
    assert saving >= kills // 10
    unbroken(often)
    one, two = checkpoint.find(whole), checkpoint.find(cut)
    assert one.step == two.step == steps
    assert all(torch.equal(tensor, two.weights()[name]) for name, tensor in one.weights().items())
    assert equal(one.state(), two.state())
    assert rows(whole) == rows(cut)
    assert (whole / "samples.txt").read_text() == (cut / "samples.txt").read_text()
    left = sorted(path.name for path in (cut / "checkpoints").iterdir())
    best = checkpoint.find(cut / "best").step
    stay = {steps - 1, steps, best, *range(30, steps + 1, 30)}
    assert left == [f"step-{step:06d}" for step in sorted(stay)]
    assert not [path.name for path in cut.iterdir() if path.name.endswith((".tmp", ".half"))]
