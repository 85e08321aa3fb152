"""The table of a sweep, from what its runs left in their folders."""

import csv
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from txlab.core.hydra import sweep, sweep_files


def test_a_row_a_run_with_what_varied_and_what_failed(tmp_path: Path, capsys: Any):
    for number, (attn, result) in enumerate([("mha", 2.0), ("gqa", 12345.6), ("mqa", None)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = ["+recipe=pretrain", f"model.attn={attn}", "seed=1"]
        figures = {"val/loss": result, "run_folder": str(folder)}
        status, outcome = (0, figures) if result else (2, "heads do not divide")
        sweep.record(folder, words, status, outcome)
    sweep.Table().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
    lines = capsys.readouterr().out.splitlines()
    table = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert table == [["0", "mha", "2"], ["1", "gqa", "12,346"], ["2", "mqa", "failed"]]
    heading = next(line for line in lines if "run" in line and "┃" in line)
    assert [cell.strip() for cell in heading.split("┃")[1:-1]] == ["run", "model.attn", "val/loss"]
    assert "run 2 failed: heads do not divide" in lines
    assert sweep.worst_status == 2


def test_runs_are_in_order_of_their_numbers(tmp_path: Path, capsys: Any):
    for number in (10, 2):
        (tmp_path / str(number)).mkdir()
        sweep.record(tmp_path / str(number), [f"seed={number}"], 0, {"val/loss": 1.0})
    sweep.Table().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
    shown = capsys.readouterr().out
    assert shown.index("│ 2 ") < shown.index("│ 10 ")
    assert sweep.worst_status == 0


def test_a_file_of_all_figures_and_a_picture(tmp_path: Path, capsys: Any):
    for number, attn in enumerate(["mha", "gqa"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows = ["step,train/loss,val/loss", "1,5.0,", f"2,4.0,{4 - number}.5", "3,3.0,"]
        (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
        figures = {"val/loss": 4.5 - number, "metrics": {"accuracy": 0.5}, "data": {"sha": "x"}}
        sweep.record(folder, ["seed=1", f"model.attn={attn}"], 0, figures)
    (tmp_path / "2").mkdir()
    sweep.record(tmp_path / "2", ["seed=1", "model.attn=mqa"], 2, "no, not so")
    sweep.Table().on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}}}))
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
    assert f"runs: {tmp_path}" in capsys.readouterr().out
