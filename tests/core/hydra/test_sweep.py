"""The tables of a sweep, from what its runs left in their folders."""

import csv
from pathlib import Path
from typing import Any

import pytest

from txlab.core.hydra import arms, sweep, sweep_files, sweep_seeds
from txlab.core.hydra.sweep import Begun


def arm(sweep_folder: Path, name: str, words: list[str], status: int | None, result: Any) -> Path:
    folder = sweep_folder / name
    folder.mkdir()
    arms.record(folder, f"key {name}", words, status, result)
    return folder


def table(said: str) -> list[list[str]]:
    rows = [line for line in said.splitlines() if "│" in line]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in rows]


def test_a_row_a_run_with_what_varied_and_what_failed(tmp_path: Path, capsys: Any):
    for number, (attn, result) in enumerate([("mha", 2.0), ("gqa", 12345.6), ("mqa", None)]):
        words = ["+recipe=pretrain", f"model.attn={attn}", "seed=1", f"run_dir={number}"]
        figures = {"val/loss": result, "run_folder": str(tmp_path)}
        status, outcome = (0, figures) if result else (2, "heads do not divide")
        arm(tmp_path, str(number), words, status, outcome)
    assert sweep.conclude(Begun(tmp_path)) == 2
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert table(said) == [["0", "mha", "2"], ["1", "gqa", "12,346"], ["2", "mqa", "failed"]]
    heading = next(line for line in lines if "run" in line and "┃" in line)
    assert [cell.strip() for cell in heading.split("┃")[1:-1]] == ["run", "model.attn", "val/loss"]
    assert "run 2 failed: heads do not divide" in lines
    assert "best: run 0, val/loss 2 (model.attn=mha)" in lines
    assert not (tmp_path / "seeds.csv").exists()


def test_runs_are_in_order_of_their_numbers(tmp_path: Path, capsys: Any):
    for number in (10, 2):
        arm(tmp_path, str(number), [f"seed={number}"], 0, {"val/loss": 1.0})
    assert sweep.conclude(Begun(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert shown.index("│ 2 ") < shown.index("│ 10 ")


def test_a_run_without_an_end_has_failed_unless_a_process_is_at_it(tmp_path: Path, capsys: Any):
    arm(tmp_path, "0", ["seed=1"], 0, {"val/loss": 1.0})
    going = arm(tmp_path, "1", ["seed=2"], None, "")
    with arms.held(going):
        assert sweep.conclude(Begun(tmp_path)) == 0
    assert table(capsys.readouterr().out)[1] == ["1", "2", "in work"]
    assert sweep.conclude(Begun(tmp_path)) == 1
    said = capsys.readouterr().out
    assert table(said)[1] == ["1", "2", "failed"]
    assert "run 1 failed: it did not end" in said


def test_a_stopped_run_is_no_failure_of_its_own(tmp_path: Path, capsys: Any):
    arm(tmp_path, "0", ["seed=1"], 2, "wrong")
    arm(tmp_path, "1", ["seed=2"], 75, "stopped by SIGTERM")
    arm(tmp_path, "2", ["seed=3"], 0, {"val/loss": 1.0})
    assert sweep.conclude(Begun(tmp_path)) == 75
    assert table(capsys.readouterr().out)[1] == ["1", "2", "stopped"]


def test_what_was_refused_leaves_nothing(tmp_path: Path):
    folder = tmp_path / "runs" / "sweep-1"
    folder.mkdir(parents=True)
    (folder / "multirun.yaml").write_text("hydra: {}")
    assert sweep.conclude(Begun(folder)) == 0
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    sweep.conclude(Begun(folder))
    assert (folder / "notes.txt").exists()


def test_the_best_run_is_by_the_figure_that_was_asked_for(tmp_path: Path, capsys: Any):
    for name, loss, matched in [("0", 1.0, 0.2), ("1", 2.0, 0.9), ("2", float("nan"), 0.1)]:
        result = {"val/loss": loss, "metrics": {"exact_match": matched}}
        arm(tmp_path, name, [f"model.attn=a{name}"], 0, result)
    sweep.conclude(Begun(tmp_path, "val/exact_match", maximize=True))
    assert "best: run 1, val/exact_match 0.9 (model.attn=a1)" in capsys.readouterr().out
    sweep.conclude(Begun(tmp_path))
    assert "best: run 0, val/loss 1 (" in capsys.readouterr().out


def test_a_file_of_all_figures_and_a_picture(tmp_path: Path, capsys: Any):
    for number, attn in enumerate(["mha", "gqa"]):
        figures = {"val/loss": 4.5 - number, "metrics": {"accuracy": 0.5}, "data": {"sha": "x"}}
        folder = arm(tmp_path, str(number), ["seed=1", f"model.attn={attn}"], 0, figures)
        rows = ["step,train/loss,val/loss", "1,5.0,", f"2,4.0,{4 - number}.5", "3,3.0,"]
        (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    arm(tmp_path, "2", ["seed=1", "model.attn=mqa"], 2, "no, not so")
    sweep.conclude(Begun(tmp_path))
    with (tmp_path / "sweep.csv").open(newline="") as stream:
        first, second, failed = csv.DictReader(stream)
    assert first == {
        "run": "0",
        "status": "0",
        "seed": "1",
        "model.attn": "mha",
        "val/loss": "4.5",
        "val/accuracy": "0.5",
        "error": "",
    }
    assert second["val/loss"] == "3.5"
    assert (failed["status"], failed["val/loss"], failed["error"]) == ("2", "", "no, not so")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert sweep_files.curve(tmp_path / "1" / "metrics.csv") == [(2, 3.5)]
    assert sweep_files.curve(tmp_path / "1" / "metrics.csv", "train/loss")[-1] == (3, 3.0)
    assert f"runs: {tmp_path}" in capsys.readouterr().out


def test_runs_that_differ_by_their_seed_alone_have_a_mean_and_a_spread(tmp_path: Path, capsys: Any):
    # Numbers are compared as numbers: a run that is gone on with may be spelled otherwise.
    for name, lr, seed, loss in [
        *(("0", "0.001", 1, 2.0), ("1", "1e-3", 2, 3.0), ("2", "1e-3", 3, 7.0)),
        *(("3", "0.1", 1, 9.0), ("4", "0.1", 2, None)),
    ]:
        status, result = (1, "disk full") if loss is None else (0, {"val/loss": loss, "step": 5})
        arm(tmp_path, name, [f"optim.lr={lr}", f"seed={seed}"], status, result)
    first, second = sweep_seeds.groups([outcome for _, outcome in arms.found(tmp_path)])
    assert (first.choices, first.n) == ({"optim.lr": "0.001"}, 3)
    assert first.spread("val/loss") == (4.0, pytest.approx(7**0.5))
    assert (second.choices, second.n) == ({"optim.lr": "0.1"}, 1)
    assert second.spread("val/loss") == (9.0, None)
    sweep.conclude(Begun(tmp_path))
    assert table(capsys.readouterr().out)[-2:] == [
        ["0.001", "3", "4 ± 2.6"],
        ["0.1", "1", "9"],
    ]
    with (tmp_path / "seeds.csv").open(newline="") as stream:
        row, alone = csv.DictReader(stream)
    assert set(row) == {"optim.lr", "n", "val/loss mean", "val/loss std"}
    assert float(row["val/loss std"]) == pytest.approx(7**0.5)
    assert (alone["val/loss mean"], alone["val/loss std"]) == ("9.0", "")


def test_no_two_runs_that_differ_by_their_seed_alone_are_no_group(tmp_path: Path):
    for name, attn in [("0", "mha"), ("1", "gqa")]:
        arm(tmp_path, name, [f"model.attn={attn}", f"seed={name}"], 0, {"val/loss": 1.0})
    assert sweep_seeds.groups([outcome for _, outcome in arms.found(tmp_path)]) == []
