"""Two gloo ranks equal one process, whatever the counts on each rank and micro-batch."""

import json
from pathlib import Path

import pytest

from tests.distributed.torchrun import torchrun
from txlab.train import checkpoint

SCRIPT = Path(__file__).with_name("one_run.py")


def figures(folder, world, accumulate, log_every=1, *resume):
    folder.mkdir()
    torchrun(SCRIPT, folder, accumulate, log_every, *resume, world=world)
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


@pytest.mark.slow
def test_a_checkpoint_between_two_rows_has_the_sums_of_all_ranks(tmp_path):
    """One row over steps 1 to 3, saved at step 2: the resumed run's row is the unbroken one's."""
    whole = figures(tmp_path / "whole", 2, 1, 3)
    half = tmp_path / "whole" / "checkpoints" / "step-000002"
    for world in (2, 1):
        resumed = figures(tmp_path / f"on-{world}", world, 1, 3, half)
        assert resumed["rows"] == [pytest.approx(whole["rows"][-1], rel=1e-6)]
