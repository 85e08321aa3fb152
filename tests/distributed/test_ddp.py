"""Two gloo ranks equal one process, whatever the counts on each rank and micro-batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from txlab.train import checkpoint

SCRIPT = Path(__file__).with_name("one_run.py")


def figures(folder, world, accumulate):
    folder.mkdir()
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    start += ["--nproc-per-node", str(world)]
    done = subprocess.run(
        [*start, str(SCRIPT), str(folder), str(accumulate)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "figures.json").read_text())


@pytest.mark.slow
def test_two_ranks_equal_one_process(tmp_path):
    """GA-02: ranks, and ranks x micro-batches, with different counts everywhere; GA-06 (c)."""
    one = figures(tmp_path / "one", 1, 1)
    for name, accumulate in (("two", 1), ("four", 2)):
        found = figures(tmp_path / name, 2, accumulate)
        for mine, theirs in zip(found["rows"], one["rows"], strict=True):
            assert mine == pytest.approx(theirs, rel=1e-5)
        assert found["weights"] == pytest.approx(one["weights"], rel=1e-4, abs=1e-4)
        generators = checkpoint.find(tmp_path / name).state()["random"]
        assert len(generators) == 2
