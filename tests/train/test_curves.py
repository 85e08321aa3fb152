"""curves.png: a panel for every column that says something."""

import math

from txlab.train.callbacks.log import Log
from txlab.train.curves import draw, panels, points

ROWS = [
    {"step": 1, "updates": 1, "tokens": 8, "skipped": 0, "train/loss": 2.0, "lr": 0.1},
    {"step": 2, "updates": 2, "tokens": 16, "skipped": 0, "train/loss": math.nan, "lr": 0.2},
    {"step": 3, "updates": 3, "tokens": 24, "skipped": 0, "train/loss": 1.0, "val/loss": 3.0},
]


def test_training_and_held_out_share_a_panel_and_counters_have_none():
    assert panels(ROWS) == {"loss": ["train/loss", "val/loss"], "lr": ["lr"]}


def test_skipped_steps_are_shown_where_there_are_any():
    assert "skipped" in panels([*ROWS, {"step": 4, "skipped": 1}])


def test_points_are_the_finite_values():
    assert points(ROWS, "train/loss") == ([1, 3], [2.0, 1.0])


def test_the_picture_is_written_whole(tmp_path):
    assert draw(tmp_path) is None
    log = Log(tmp_path)
    for row in ROWS:
        log._append(row)
    assert draw(tmp_path) == tmp_path / "curves.png"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["curves.png", "metrics.csv"]
