"""HYD-03: a run has a folder of its own, whoever starts when."""

import itertools
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.test_run import ROOT, TEXT, TINY
from txlab.train import checkpoint, folder


def test_four_runs_of_one_second_have_four_folders(tmp_path, monkeypatch):
    """Even where luck gives two of them the same name."""
    monkeypatch.chdir(tmp_path)
    draws = itertools.cycle("aaaabbbcd")
    monkeypatch.setattr(secrets, "token_hex", lambda n: next(draws))
    monkeypatch.setattr(time, "strftime", lambda form: "20261201-000000")

    def start(_):
        with folder.opened(None, None, "pretrain") as place:
            (place.path / "file").touch()
            return place

    with ThreadPoolExecutor(4) as runs:
        places = list(runs.map(start, range(4)))
    assert {place.path for place in places} == set((tmp_path / "runs").iterdir())
    assert len({place.path for place in places}) == 4
    assert all(place.fresh for place in places)


@pytest.mark.slow
def test_four_commands_at_once_make_four_whole_runs(tmp_path):
    """From another folder than that of the text, which is named relative to theirs."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "texts" / "text.txt").write_text(TEXT)
    words = [*TINY, "data.path=../texts/text.txt", "data.cache_dir=cache", "train.sample=null"]
    command = [sys.executable, "-m", "txlab", "+recipe=pretrain", *words]
    started = [
        subprocess.Popen(
            [*command, f"seed={seed}"],
            cwd=tmp_path / "here",
            env={"PATH": "", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    ends = [(process.communicate(timeout=300)[1], process.returncode) for process in started]
    assert [code for _, code in ends] == [0] * 4, ends
    runs = sorted((tmp_path / "here" / "runs").iterdir())
    assert len(runs) == 4
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in runs]
    assert sorted(config["seed"] for config in configs) == [0, 1, 2, 3]
    for run, config in zip(runs, configs, strict=True):
        assert config["data"]["path"] == str(tmp_path / "texts" / "text.txt")
        assert checkpoint.find(run).step == 4
        assert Path(run / "summary.json").exists()
