"""Runs as a user starts them, and what trackers have of them by their own files: one run whatever
the ranks and kills, the log's own values, the resolved config (WB-01, WB-03)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_command_line import ROOT, txlab
from tests.train.tracking import histories
from txlab.train.tracking import wandb_history

WORDS = [
    *("debug=fast", "trainer=cpu", "train.steps=12", "train.val_every=4", "train.save_every=5"),
    *("train.log_every=2", "train.sample=the", "logger=[wandb,tensorboard]", "run_dir=run"),
]
KILLER = """
import os, signal
from lightning.pytorch import Callback
class Killer(Callback):
    def on_step(self, trainer, module):
        if module.counters.step == 9:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def tracked(file: Path) -> tuple[Any, dict[str, Any]]:
    """(the run, its config) in a file of W&B."""
    run, config = None, {}
    for _, record in wandb_history.records(file):
        run = record.run if record.HasField("run") else run
        updates = [*record.run.config.update, *record.config.update]
        config |= {entry.key: json.loads(entry.value_json) for entry in updates if entry.key}
    config.pop("_wandb", None)  # which a killed process may not have come to
    return run, config


def resolved(run: Path) -> dict[str, Any]:
    return yaml.safe_load((run / "config.yaml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_run_that_goes_on_is_one_run_with_each_step_once(tmp_path: Path, ranks: int):
    (tmp_path / "killer.py").write_text(KILLER)
    words = [*WORDS, *(["trainer=ddp", "trainer.devices=2"] if ranks > 1 else [])]
    place = {"cwd": tmp_path, "PYTHONPATH": f"{ROOT}:{tmp_path}", "WANDB_MODE": "offline"}
    killed = txlab(*words, "+callbacks.kill._target_=killer.Killer", **place)
    assert killed.returncode not in (0, 2), killed.stderr
    run = tmp_path / "run"
    assert max(histories.local(run)) == 8
    done = txlab(*words, "resume=auto", **place)
    assert done.returncode == 0, done.stderr
    assert list(histories.local(run)) == [2, 4, 6, 8, 10, 12]
    histories.assert_tracked(run)
    files = histories.segments(run)
    assert len(files) == len(list(tmp_path.rglob("*.wandb"))) == 2
    # W&B's own process may not have come to write down the run that was killed.
    told = [one for one in map(tracked, files) if one[0] is not None]
    for found, _ in told:
        assert found.run_id == (run / "wandb_id.txt").read_text()
        assert (found.job_type, found.display_name) == ("train", "run")
    assert tracked(files[-1])[1] == resolved(run)
    tables = histories.wandb(run)
    assert [step for step, row in tables.items() if "samples.nrows" in row] == [4, 8, 12]
    reader = histories.tensorboard(run)
    assert [event.step for event in reader.Tensors("samples/text_summary")] == [4, 8, 12]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines == list(histories.local(run).values())
    starts = [json.loads(line)["step"] for line in (run / "code.jsonl").read_text().splitlines()]
    assert starts == [0, 5]


@pytest.mark.slow
def test_a_run_each_in_one_group_with_all_of_the_config(tmp_path: Path):
    """WB-01: three of four are three runs; the second fails, and the others, and the sweep's table,
    are there all the same."""
    words = ["debug=fast", "train.steps=2", "train.sample=null", "logger=wandb"]
    done = txlab(*words, "-m", "model.n_heads=4,5,8,2", cwd=tmp_path, WANDB_MODE="offline")
    assert done.returncode == 2
    assert "model.dim=32 is not a multiple of model.n_heads=5" in done.stdout
    assert "WARNING" not in done.stderr
    (sweep,) = (tmp_path / "runs").iterdir()
    runs = sorted(
        (config for config in sweep.rglob("config.yaml") if (config.parent / "wandb").exists()),
        key=lambda config: resolved(config.parent)["model"]["n_heads"],
    )
    assert len(list(tmp_path.rglob("*.wandb"))) == len(runs) == 3
    ids = set()
    for config, n_heads in zip(runs, (2, 4, 8), strict=True):
        (file,) = histories.segments(config.parent)
        found, sent = tracked(file)
        ids.add(found.run_id)
        assert (found.run_group, found.job_type) == (sweep.name, "train")
        assert f"model.n_heads={n_heads}" in found.display_name
        assert list(histories.wandb(config.parent)) == [1, 2]
        assert sent == resolved(config.parent)
        assert sent["model"]["n_heads"] == n_heads
        chosen = {part: sent["model"][part]["name"] for part in ("attn", "ffn", "norm", "pos")}
        assert chosen == {"attn": "gqa", "ffn": "swiglu", "norm": "rmsnorm", "pos": "rope"}
        assert sent["optim"]["name"] == "adamw"
        assert {"adapter", "data", "objective", "schedule", "tokenizer"} <= sent.keys()
    assert len(ids) == 3
    assert (sweep / "sweep.csv").read_text().count("\n") == 5
    assert (sweep / "sweep.png").exists()


@pytest.mark.slow
def test_what_an_agent_passes_are_leaves_of_the_resolved_config(tmp_path: Path):
    """WB-03, without a server: the agent leaves its parameters in a file, besides passing them."""
    given = {"model.attn.n_kv_heads": 1, "optim.lr": 0.005}
    file = tmp_path / "parameters.yaml"
    file.write_text(yaml.safe_dump({key: {"value": value} for key, value in given.items()}))
    agent = {"WANDB_MODE": "offline", "WANDB_RUN_ID": "chosen", "WANDB_SWEEP_ID": "s"}
    agent["WANDB_SWEEP_PARAM_PATH"] = str(file)
    words = ["debug=fast", "train.steps=2", "train.sample=null", "logger=wandb", "run_dir=run"]
    passed = [f"{key}={value}" for key, value in given.items()]
    done = txlab(*words, *passed, cwd=tmp_path, **agent)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    (sent,) = histories.segments(run)
    found, config = tracked(sent)
    assert found.run_id == "chosen"
    whole = resolved(run)
    assert (whole["model"]["attn"]["n_kv_heads"], whole["optim"]["lr"]) == (1, 0.005)
    assert whole["model"]["attn"].keys() > {"name", "n_kv_heads", "qk_norm"}
    assert {key: config[key] for key in whole} == whole
    # The flat names are the agent's own: by them W&B draws its pictures of a sweep.
    assert {key: value for key, value in config.items() if key not in whole} == given
    refused = txlab(*words[:-1], "model.attn.hedas=4", cwd=tmp_path, **agent)
    assert refused.returncode == 2
    assert "model.attn.hedas" in refused.stderr
    assert len(list(tmp_path.rglob("*.wandb"))) == 1
