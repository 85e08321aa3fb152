"""A disk that really fills up, on a small file system: one line, nothing lost, nothing left."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

import txlab
from tests.test_run import TEXT, TINY
from txlab.core.errors import report
from txlab.run import train
from txlab.train import checkpoint

FILLER = "filler"


@pytest.fixture
def disk(tmp_path):
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.name != "posix":
        pytest.skip("no mount on this system")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "none", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # a traceback may hold a file


@pytest.fixture
def words(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    place = [f"data.path={tmp_path}/text.txt", f"data.cache_dir={tmp_path}/cache"]
    return [*TINY, *place, "train.pictures=false", "train.log_every=1", "train.val_batches=1"]


def fill(place: Path, leave: int = 0) -> None:
    """Write until nothing but `leave` bytes are free."""
    with contextlib.suppress(OSError), (place / FILLER).open("ab", buffering=0) as stream:
        while shutil.disk_usage(place).free > leave:
            stream.write(b"x" * 4096)


class Fill(Callback):
    """Fills the disk when a step begins, or when all is done but the pictures."""

    def __init__(self, place: str, step: int = -1, leave: int = 0) -> None:
        self.place, self.step, self.leave = Path(place), step, leave

    def on_train_batch_start(self, trainer, pl_module: Any, batch, batch_idx) -> None:
        if pl_module.counters.step + 1 == self.step:
            fill(self.place, self.leave)

    def teardown(self, trainer, pl_module, stage) -> None:
        if self.step < 0:
            fill(self.place)


def filling(place: Path, **how: int) -> list[str]:
    entries = {"_target_": f"{__name__}.Fill", "place": place, **how}
    return [f"+callbacks.fill.{key}={value}" for key, value in entries.items()]


def failed(capsys, words: list[str]) -> str:
    """The line that a run ends with whose disk is full."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  (whatever it is, one line tells it)
        train(txlab.compose(words))
    capsys.readouterr()
    assert report(caught.value) == 1
    line = capsys.readouterr().err.strip()
    assert "\n" not in line
    assert "No space left on device" in line
    return line


def assert_goes_on(tmp_path, run: Path, words: list[str]) -> None:
    """After making room the run ends in the weights of one that never failed."""
    (run.parent / FILLER).unlink()
    train(txlab.compose([*words, f"run_dir={run}", "resume=auto"]))
    train(txlab.compose([*words, f"run_dir={tmp_path / 'whole'}"]))
    one, two = checkpoint.find(run), checkpoint.find(tmp_path / "whole")
    assert one.step == two.step
    assert all(torch.equal(t, two.weights()[name]) for name, t in one.weights().items())
    assert not [p for p in run.rglob("*") if "tmp" in p.name]


def test_before_the_first_file(disk, words, capsys):
    fill(disk)
    line = failed(capsys, [*words, f"run_dir={disk / 'run'}"])
    assert "make room" in line
    assert [p.name for p in disk.rglob("*")] == [FILLER]


@pytest.mark.parametrize("leave", [0, pytest.param(30_000, marks=pytest.mark.slow)])
def test_while_saving(disk, words, tmp_path, capsys, leave):
    run, words = disk / "run", [*words, "train.save_every=2", "train.sample=null"]
    line = failed(capsys, [*words, f"run_dir={run}", *filling(disk, step=4, leave=leave)])
    assert "step-000004 failed" in line
    assert "the last good one is" in line
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["step-000002"]
    checkpoint.find(run).verify_all()
    assert_goes_on(tmp_path, run, words)


@pytest.mark.slow
def test_while_logging(disk, words, tmp_path, capsys):
    """A line that was cut off in the middle is none."""
    words = [*words, "train.steps=44", "train.save_every=20", "train.keep_last=1"]
    run = disk / "run"
    line = failed(capsys, [*words, "train.sample=null", f"run_dir={run}", *filling(disk, step=22)])
    assert "metrics." in line
    assert "make room" in line
    assert_goes_on(tmp_path, run, [*words, "train.sample=null"])


def test_while_writing_a_sample(disk, words, tmp_path, capsys):
    run, words = disk / "run", [*words, "train.save_every=1", "train.val_every=2"]
    line = failed(capsys, [*words, f"run_dir={run}", *filling(disk, step=2)])
    assert "samples.txt" in line
    assert_goes_on(tmp_path, run, words)


@pytest.mark.slow
def test_while_drawing(disk, words, tmp_path, capsys):
    """The weights are there; the pictures are drawn when the run is resumed."""
    run, words = disk / "run", [*words, "train.pictures=true"]
    failed(capsys, [*words, "train.sample=null", f"run_dir={run}", *filling(disk)])
    assert checkpoint.find(run).step == 4
    assert_goes_on(tmp_path, run, [*words, "train.sample=null"])
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "summary.json").exists()
