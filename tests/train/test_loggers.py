"""Loggers: guarded, offline where they must be, and never imported unasked."""

import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from lightning.pytorch.loggers import Logger

import txlab
import txlab.run
from tests.train.tiny_run import Run
from txlab.core.errors import RequestError
from txlab.train import curves, loggers
from txlab.train.callbacks import Tracking
from txlab.train.callbacks.log import read_rows
from txlab.train.loggers import Guarded, offline_reason, tracked, wandb_arguments
from txlab.train.tracking import Tracker, code_state, wandb_logger
from txlab.train.trainer import check_loggers, make_loggers


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


def test_online_without_a_key_is_refused(bare, monkeypatch):
    online = txlab.compose(["logger=wandb", "logger.wandb.offline=false"]).logger
    with pytest.raises(RequestError, match=r"offline=false: there is no API key .* `wandb login`"):
        check_loggers(online)
    check_loggers(txlab.compose(["logger=wandb", "logger.wandb.offline=true"]).logger)
    check_loggers(txlab.compose(["logger=wandb"]).logger)
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    check_loggers(online)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_logger_is_refused_before_any_data_or_process(bare, monkeypatch, devices):
    for step in ("prepare_data", "train_on_ranks"):
        monkeypatch.setattr(txlab.run, step, lambda *_, step=step: pytest.fail(f"{step} was run"))
    words = ["logger=wandb", "logger.wandb.offline=false", f"trainer.devices={devices}"]
    with pytest.raises(RequestError, match="there is no API key"):
        txlab.run.train(txlab.compose([*words, f"run_dir={bare / 'run'}"]))
    assert not (bare / "run").exists()


def test_a_class_that_is_no_logger_is_refused():
    with pytest.raises(RequestError, match=r"logger\.x\._target_=.*OrderedDict is not a Logger"):
        check_loggers({"x": {"_target_": "collections.OrderedDict"}})


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


CALLS = [
    *("attach", "log_hyperparams", "log_metrics", "log_table", "log_file", "log_picture"),
    *("log_checkpoint", "log_summary", "save", "finalize"),
]
ASKED = ("version", "experiment", "last_step")


def failing(at):
    """A tracker that fails at one of its calls and notes which were made."""

    def call(name):
        def made(self, *args, **kwargs):
            self.calls.append(name)
            if name == at:
                raise OSError(28, "No space left on device")
            return 0

        return made

    parts = {name: call(name) for name in CALLS} | {name: property(call(name)) for name in ASKED}
    return type("Failing", (Tracker, Logger), {**parts, "name": "failing", "calls": []})()


@pytest.mark.parametrize("at", [*CALLS, *ASKED])
def test_training_outlives_a_tracker_that_fails_anywhere(tmp_path, monkeypatch, at):
    monkeypatch.setattr(curves, "pictures", lambda *args: [tmp_path / "loss.png"])
    monkeypatch.setattr(code_state, "record", lambda *args: [tmp_path / "code.jsonl"])
    (tmp_path / "samples.txt").write_text("--- step 2\nhey\n\n")
    said, inner = [], failing(at)
    guarded = Guarded("mine", inner, said.append)
    guarded.tell(lambda tracker: tracker.attach(tmp_path, 0, said.append))
    guarded.log_hyperparams({})
    run = Run(tmp_path, 2, trainer={"logger": [guarded]})
    run.callbacks.append(Tracking(tmp_path, run.checkpoints, facts={}))
    assert run.fit().module.counters.step == 2
    guarded.save()
    assert guarded.version is None
    assert said == [
        "logger mine failed and is left out (OSError: [Errno 28] No space left on device)."
    ]
    assert inner.calls[-1] == at
    assert inner.calls.count(at) == 1
    assert [row["step"] for row in read_rows(tmp_path / "metrics.csv")] == [1, 2]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("+logger.wandb.projekt=x", r"logger\.wandb: refused: .*projekt"),
        ("logger.wandb.log_model=best", r"logger\.wandb: refused: log_model=best: expected"),
        ("+logger.tensorboard.nome=x", r"logger\.tensorboard: refused: .*nome"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_written(word, message):
    given = txlab.compose(["logger=[wandb,tensorboard]", word]).logger
    with pytest.raises(RequestError, match=message):
        check_loggers(given)


@pytest.mark.parametrize("choice", ["csv", "wandb", "tensorboard", "[wandb,tensorboard]"])
def test_what_can_be_chosen_is_known(choice):
    given = txlab.compose([f"logger={choice}"]).logger
    assert given is not None
    assert list(given) == choice.strip("[]").split(",")
    check_loggers(given)


def test_a_server_that_never_answers_costs_a_bounded_time(bare, monkeypatch):
    """The run is opened offline then, with one line; wandb itself is a stand-in here."""
    tried = []

    def init(**given):
        tried.append((given["mode"], given["id"], given["settings"].init_timeout))
        if given["mode"] is None:
            raise TimeoutError("no answer")
        return SimpleNamespace(define_metric=lambda *args, **kwargs: None)

    import wandb

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb, "teardown", lambda: tried.append("given up"))
    said = []
    logger = wandb_logger.WandbLogger(id="abc", save_dir=str(bare), settings={"init_timeout": 3})
    logger.attach(bare, 0, said.append)
    assert logger.experiment is logger.experiment
    assert tried == [(None, "abc", 3), "given up", ("offline", "abc", 3)]
    assert len(said) == 1
    assert said[0].startswith("wandb: TimeoutError, no run could be opened on the server; it is")
