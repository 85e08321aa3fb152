"""Damaged checkpoints and full disks: the run goes back to what is whole, or ends in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_resume import TINY, assert_same, go, rows, text
from txlab.core.errors import RequestError, RunError

__all__ = ["text"]


def flip(file):
    """One bit of a file, in its middle."""
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def test_resume_goes_back_over_damaged_checkpoints_and_says_so(tmp_path, text, capsys):
    words = ("train.steps=6", "train.save_every=2", "train.keep_last=3")
    go(tmp_path / "whole", text, *words)
    go(tmp_path / "run", text, *words)
    folder = tmp_path / "run" / "checkpoints"
    flip(folder / "step-000006" / "weights.safetensors")
    (folder / "step-000004" / "tokenizer.json").unlink()
    capsys.readouterr()
    go(tmp_path / "run", text, *words, "train.keep_last=1", "resume=auto")
    lines = [line for line in capsys.readouterr().out.splitlines() if "Going back" in line]
    assert "step-000006/weights.safetensors cannot be read (its bits are not those" in lines[0]
    assert lines[0].endswith("Going back to step-000004.")
    assert "step-000004 has no tokenizer.json" in lines[1]
    assert lines[1].endswith("Going back to step-000002.")
    assert_same(tmp_path / "whole", tmp_path / "run", 6)
    assert rows(tmp_path / "whole") == rows(tmp_path / "run")
    names = {path.name for path in folder.iterdir()}
    assert names == {"step-000006", "step-000006-damaged", "step-000004-damaged"}


def test_resume_never_starts_anew_over_damaged_checkpoints(tmp_path, text):
    go(tmp_path / "run", text, "train.steps=2")
    flip(tmp_path / "run" / "checkpoints" / "step-000002" / "state.pt")
    for resume in ("auto", tmp_path / "run"):
        with pytest.raises(RequestError, match=r"step-000002/state\.pt cannot be read"):
            go(tmp_path / "run", text, "train.steps=4", f"resume={resume}")


LIMITED = (
    "import resource, sys; from txlab.__main__ import main\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)); sys.exit(main())"
)


def test_a_disk_that_fills_up_while_saving_ends_the_run_with_one_line(tmp_path, text):
    """No file may grow beyond 60 kB: weights fit, the optimizer's state does not."""
    go(tmp_path / "run", text, "train.steps=2")
    folder = tmp_path / "run" / "checkpoints"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert (folder / "step-000002" / "state.pt").stat().st_size > 60_000
    words = [*TINY, *text, f"run_dir={tmp_path}/run", "train.steps=4", "resume=auto"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"txlab: error: saving {folder}/step-000004 failed (")
    assert line.endswith(
        f"the last good one is {folder}/step-000002. Make room, then go on with resume=auto."
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    go(tmp_path / "run", text, "train.steps=4", "resume=auto")


def test_a_disk_that_is_full_from_the_start_leaves_no_half_a_file(tmp_path, text, monkeypatch):
    """A branch: the log of the run it comes from is copied first."""
    go(tmp_path / "run", text, "train.steps=2")
    replace = Path.replace

    def full(self, target):
        if self.suffix == ".tmp" and target.name == "config.yaml":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunError, match=r"new cannot be written \(No space left on device\): make"):
        go(tmp_path / "new", text, "train.steps=4", f"resume={tmp_path / 'run'}")
    assert not (tmp_path / "new").exists()
