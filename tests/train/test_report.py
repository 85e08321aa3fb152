"""What a run says of itself before it starts."""

import re

import pytest

from tests.train.tiny_run import Run
from txlab.core.hydra.sweep_words import FIGURES
from txlab.train.report import remarks, summarise
from txlab.train.schedule import Cosine


@pytest.mark.parametrize(
    ("warmup", "stop_at", "said"),
    [
        (4.0, None, []),
        (0.5, 4, []),
        (0.5, 2, ["train.stop_at=2: this part ends there, saved; resume=auto without it goes on"]),
        (5.0, None, ["schedule.warmup is 5 updates long: in 4 steps .* comes to 80% of its peak"]),
        (0.0, 5, ["train.stop_at=5: the run ends at 4 already"]),
    ],
)
def test_what_a_run_never_comes_to_is_said(tmp_path, warmup, stop_at, said):
    run = Run(tmp_path, 4, stop_at=stop_at, schedule=Cosine.Config(warmup=warmup))
    found = remarks(run.module)
    assert len(found) == len(said)
    assert all(re.search(pattern, line) for pattern, line in zip(said, found, strict=True))


def test_a_part_that_is_done_is_said_to_be(tmp_path):
    run = Run(tmp_path, 4, stop_at=2)
    run.module.counters.step = 2
    assert remarks(run.module) == [
        "train.stop_at=2: that part is done; resume=auto without it goes on"
    ]


def test_sweeps_know_the_figures_of_a_summary(tmp_path):
    run = Run(tmp_path, 2, val_every=2)
    run.fit()
    summary = summarise(tmp_path, run.module, {"unigram_entropy": 2.0})
    numbers = {key for key, value in summary.items() if isinstance(value, (int, float))}
    assert numbers - {"stopped"} <= {*FIGURES, *(key for key in numbers if "val/" in key)}
    assert set(FIGURES) <= set(summary)
