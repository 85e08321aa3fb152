"""metrics.csv: fixed columns, rows as reported, cut on resume, columns added when they appear."""

import csv
import json
import math
from types import SimpleNamespace

import pytest
import torch

from tests.train.tiny_run import Run
from txlab.core.errors import RequestError, RunError
from txlab.train.callbacks.log import COLUMNS, Log, read_rows

MAIN = SimpleNamespace(is_global_zero=True, loggers=[])


def table(folder):
    with (folder / "metrics.csv").open() as stream:
        return list(csv.reader(stream))


def test_columns_of_a_run(run):
    done = run(4, val_every=2, log_every=2)
    head, *rows = table(done.folder)
    assert head[: len(COLUMNS)] == list(COLUMNS)
    assert {"train/nll"} >= set(head[len(COLUMNS) :])
    assert [row[0] for row in rows] == ["2", "4"]
    by_name = dict(zip(head, rows[-1], strict=True))
    assert by_name["updates"] == "4"
    assert float(by_name["val/loss"]) > 0
    assert float(by_name["lr"]) > 0
    assert float(by_name["tokens_per_s"]) > 0


def test_figures_survive_the_file_exactly(tmp_path):
    value = 1 / 3
    Log(tmp_path).on_row(MAIN, None, {"step": 1, "train/loss": value})
    assert read_rows(tmp_path / "metrics.csv") == [{"step": 1, "train/loss": value}]


def test_rows_beyond_the_resumed_step_and_torn_lines_go(tmp_path):
    log = Log(tmp_path)
    for step in range(1, 6):
        log.on_row(MAIN, None, {"step": step, "train/loss": float(step)})
    with (tmp_path / "metrics.csv").open("a") as stream:
        stream.write("6,6")
    again = Log(tmp_path, resumed_step=3)
    again.setup(MAIN, None, "fit")
    again.on_row(MAIN, None, {"step": 4, "train/loss": 4.5})
    rows = read_rows(tmp_path / "metrics.csv")
    assert [(row["step"], row["train/loss"]) for row in rows] == [(1, 1), (2, 2), (3, 3), (4, 4.5)]


def test_a_new_column_joins_the_old_rows(tmp_path):
    log = Log(tmp_path)
    log.on_row(MAIN, None, {"step": 1})
    log.on_row(MAIN, None, {"step": 2, "train/balance": 0.5})
    head, first, second = table(tmp_path)
    assert head[-1] == "train/balance"
    assert (first[-1], second[-1]) == ("", "0.5")


def test_a_full_disk_is_a_run_error(tmp_path):
    log = Log(tmp_path / "gone")
    with pytest.raises(RunError, match=r"metrics\.csv cannot be written"):
        log.on_row(MAIN, None, {"step": 1})


def test_loggers_get_the_very_rows_of_the_file(tmp_path):
    """The tracked history equals the run's own log."""
    got = []
    logger = SimpleNamespace(log_metrics=lambda row, step: got.append((step, dict(row))))
    log = Log(tmp_path)
    rows = [{"step": 1, "train/loss": 0.25}, {"step": 2, "val/loss": 0.5}]
    for row in rows:
        log.on_row(SimpleNamespace(is_global_zero=True, loggers=[logger]), None, row)
    assert got == [(1, rows[0]), (2, rows[1])]
    assert read_rows(tmp_path / "metrics.csv") == rows


def test_no_row_twice_when_a_run_ends_at_an_interval(tmp_path):
    done = Run(tmp_path, 4, log_every=2, val_every=4).fit()
    assert done.log.column("step") == [2, 4]
    assert torch.isfinite(torch.tensor(done.log.column("train/loss"))).all()


@pytest.mark.parametrize("raw", [b"a,b\n1,2\n", b"step,lr\n1,x\n", b"step,lr\n\xff,1\n"])
def test_a_log_that_is_not_ours_is_refused_in_one_line(tmp_path, raw):
    (tmp_path / "metrics.csv").write_bytes(raw)
    with pytest.raises(RequestError, match=r"metrics\.csv is damaged or not ours"):
        read_rows(tmp_path / "metrics.csv")


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_both_files_have_the_same_rows(run):
    done = run(6, val_every=4, log_every=2, save_every=3)
    assert lines(done.folder) == done.log.rows == read_rows(done.folder / "metrics.csv")


def test_both_files_go_back_together_and_one_is_made_of_the_other(tmp_path):
    log = Log(tmp_path)
    for step in range(1, 6):
        log.on_row(MAIN, None, {"step": step, "train/loss": step / 3})
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "train/lo')
    Log(tmp_path, resumed_step=3).setup(MAIN, None, "fit")
    assert lines(tmp_path) == read_rows(tmp_path / "metrics.csv")
    assert [row["step"] for row in lines(tmp_path)] == [1, 2, 3]


def test_what_json_has_no_number_for_is_text(tmp_path):
    Log(tmp_path).on_row(MAIN, None, {"step": 1, "train/loss": math.nan, "grad_norm": math.inf})
    assert lines(tmp_path) == [{"step": 1, "train/loss": "nan", "grad_norm": "inf"}]
