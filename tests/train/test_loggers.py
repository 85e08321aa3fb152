"""Loggers: guarded, offline where they must be, and never imported unasked."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.pytorch.loggers import Logger

import txlab
from txlab.core.errors import RequestError
from txlab.train import loggers
from txlab.train.loggers import Guarded, offline_reason, tracked, wandb_arguments
from txlab.train.trainer import make_callbacks, make_loggers


class Broken(Logger):
    name = "broken"
    version = 0

    def log_metrics(self, metrics, step=None):
        raise ConnectionError("the server\nis gone")

    def log_hyperparams(self, params, *args, **kwargs):
        pass


def test_a_failing_logger_is_left_out_with_one_line():
    said = []
    guarded = Guarded("mine", Broken(), said.append)
    guarded.log_metrics({"a": 1.0}, 1)
    guarded.log_metrics({"a": 1.0}, 2)
    assert said == ["logger mine failed and is left out (ConnectionError: the server is gone)."]
    assert guarded.experiment is None


def test_training_outlives_its_logger(run):
    said = []
    done = run(3, trainer={"logger": [Guarded("mine", Broken(), said.append)]})
    assert done.module.counters.step == 3
    assert len(said) == 1


@pytest.fixture
def bare(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path


def test_wandb_without_key_or_network_is_offline_and_says_so(bare, monkeypatch):
    said = []
    arguments = wandb_arguments(bare, {"project": "p"}, said.append)
    assert arguments["offline"] is True
    assert "no API key" in said[0]
    assert "wandb sync" in said[0]
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    assert offline_reason() == "no connection to 127.0.0.1"
    monkeypatch.setattr(loggers.socket, "create_connection", lambda *a, **k: io.BytesIO())
    assert offline_reason() is None
    assert "offline" not in wandb_arguments(bare, {}, said.append)


def test_a_netrc_counts_as_a_key(bare):
    (bare / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert offline_reason() != "no API key"


def test_a_resumed_run_keeps_its_wandb_id(bare):
    one = wandb_arguments(bare, {}, print)
    two = wandb_arguments(bare, {}, print)
    assert one["id"] == two["id"]
    assert two["resume"] == "allow"


def test_loggers_write_into_the_run_folder(tmp_path):
    given = {"csv": {"_target_": "lightning.pytorch.loggers.CSVLogger"}, "none": None}
    (made,) = make_loggers(given, tmp_path, print)
    assert made.inner.save_dir == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": {"project": "p"}}, r"callbacks\.x has no _target_"),
        ({"x": {"_target_": "no.such.Thing"}}, r"callbacks\.x\._target_=no\.such\.Thing cannot"),
        (
            {"x": {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "wrong": 1}},
            r"callbacks\.x: EarlyStopping refuses its arguments: .*wrong",
        ),
    ],
)
def test_wrong_entries_are_refused_by_name(given, message):
    with pytest.raises(RequestError, match=message):
        make_callbacks(given)


def test_early_stopping_ends_a_run_with_one_last_validation(run):
    (stopping,) = make_callbacks(
        {
            "stop": {
                "_target_": "lightning.pytorch.callbacks.EarlyStopping",
                "monitor": "val/loss",
                "min_delta": 100.0,
                "patience": 1,
            }
        }
    )
    done = run(20, val_every=3, callbacks=(stopping,))
    assert [row["step"] for row in done.log.rows if "val/loss" in row] == [3, 6]
    assert done.checkpoints.saved_step == 6


def test_wandb_is_not_imported_unasked():
    code = "import sys, txlab.run, txlab.train.trainer; print('wandb' in sys.modules)"
    root = Path(txlab.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


class WandbLogger(Broken):
    """Stands for W&B's, by its name."""

    def __init__(self):
        super().__init__()
        self.ended = []

    def finalize(self, status):
        pass

    @property
    def experiment(self):
        return self

    def finish(self, exit_code):
        self.ended.append(exit_code)


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("failed", 1)])
def test_a_wandb_run_ends_with_its_run(status, code):
    """WB-01: else the next run of a sweep would be logged into it."""
    inner = WandbLogger()
    Guarded("wandb", inner, print).finalize(status)
    assert inner.ended == [code]


def test_a_wandb_run_is_told_where_it_belongs():
    given = {"wandb": {"_target_": "x.WandbLogger", "name": "mine"}, "csv": {"_target_": "x.CSV"}}
    found = tracked(given, job_type="sft", group="sweep-1", name="0 seed=1")
    assert found["wandb"] == given["wandb"] | {"job_type": "sft", "group": "sweep-1"}
    assert found["csv"] == given["csv"]
    assert tracked(given, job_type="sft")["wandb"].keys() == {"_target_", "name", "job_type"}
    assert tracked(None, job_type="sft") is None


def test_an_agent_chooses_the_id(bare, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "chosen")
    assert wandb_arguments(bare, {}, print)["id"] == "chosen"
