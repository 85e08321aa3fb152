"""What cannot be swept is refused before anything is composed, by name and with the way out."""

import os
from pathlib import Path

import pytest

from txlab.core.errors import RequestError
from txlab.core.hydra import arms, prepare, sweep_words


def check(*words: str) -> None:
    sweep_words.check(prepare(["+recipe=pretrain", *words], multirun=True))


@pytest.mark.parametrize(
    "words",
    [
        ["seed=1,2"],
        ["model.attn=mha,gqa", "optim.lr=1e-3,1e-4"],
        ["seed=range(1,1001)"],
        ["model.attn=glob(m*)"],
        ["seed=1,2", "hydra.launcher.n_jobs=2"],
        ["run_dir=new", "seed=1,2", "resume=auto"],
    ],
)
def test_what_can_be_swept(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    check(*words)


OPTUNA = "hydra/sweeper=optuna"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optim.lr=interval(1e-4,1e-2)"], r"is a range.*hydra/sweeper=optuna"),
        (["optim.lr=tag(log,interval(1e-4,1e-2))"], "is a range"),
        (["seed=range(0,100)", "model.n_layers=range(1,12)"], "1,100 runs, more than 1,000"),
        (["seed=1,2", "resume=auto"], r"resume=auto needs run_dir=FOLDER"),
        (["seed=1,2", "run_dir="], "run_dir= is empty"),
        ([OPTUNA, "hydra.sweeper.n_trials=0", "seed=1,2"], r"n_trials=0: expected at least 1"),
        ([OPTUNA, "optim.lr=interval(2,1)"], r"optim\.lr=interval\(2,1\): the first end must be"),
        ([OPTUNA, "optim.lr=tag(log,interval(0,1))"], r"lr=tag.*: on a log scale both ends are"),
    ],
)
def test_what_cannot(words: list[str], message: str):
    with pytest.raises(RequestError, match=message):
        check(*words)


@pytest.mark.parametrize(
    ("word", "extra"),
    [
        ("hydra/launcher=joblib", "sweeps"),
        ("hydra/launcher=submitit_local", "slurm"),
        ("hydra/launcher=submitit_slurm", "slurm"),
        ("hydra/launcher=slurm", "slurm"),
        ("hydra/sweeper=optuna", "optuna"),
    ],
)
def test_a_missing_package_is_named_by_its_extra(
    word: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match=rf"{word} needs .*pip install 'txlab\[{extra}\]'"):
        check("seed=1,2", word)


def test_slurm_is_started_where_there_is_slurm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(RequestError, match=r"there is no srun here.*submitit_local"):
        check("seed=1,2", "hydra/launcher=slurm")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    check("seed=1,2", "hydra/launcher=slurm")


def test_more_jobs_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    check("seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=-1")
    with pytest.raises(RequestError, match=r"n_jobs=3: this machine has 2 cores.*give 2 or less"):
        check("seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=3")
    with pytest.raises(RequestError, match="n_jobs=many: expected a whole number"):
        check("seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=many")


def test_a_folder_is_a_sweeps_or_a_runs(tmp_path: Path):
    arms.claimed(tmp_path, "a", 0, [])
    with pytest.raises(RequestError, match="holds a sweep already: resume=auto goes on with it"):
        check("seed=1,2", f"run_dir={tmp_path}")
    check("seed=1,2", f"run_dir={tmp_path}", "resume=auto")
    (tmp_path / "0" / "checkpoints").mkdir()
    with pytest.raises(RequestError, match="holds a run, not a sweep"):
        check("seed=1,2", f"run_dir={tmp_path}/0", "resume=auto")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("hydra/launcher=joblib", "is for sweeps: add -m"),
        ("optim.lr=interval(1e-4,1e-2)", "stands for several values: add -m"),
    ],
)
def test_a_single_run_takes_no_words_of_sweeps(word: str, message: str):
    with pytest.raises(RequestError, match=message):
        sweep_words.check_single(prepare([word]))


def test_a_single_run_stays_out_of_the_folder_of_a_sweep(tmp_path: Path):
    arms.claimed(tmp_path, "a", 0, [])
    with pytest.raises(RequestError, match="is the folder of a sweep: add -m"):
        sweep_words.check_single(prepare([f"run_dir={tmp_path}", "resume=auto"]))
    sweep_words.check_single(prepare([f"run_dir={tmp_path}/0", "resume=auto"]))


def test_hydra_is_told_which_words_tell_the_arms_apart():
    words = prepare(["+recipe=pretrain", "model.attn=mha,gqa", "optim.lr=1e-3"], multirun=True)
    told, *more = sweep_words.settings(words)
    assert told == "hydra.job.config.override_dirname.exclude_keys=[recipe,optim.lr]"
    assert more == []
    searching = sweep_words.settings([*words, "hydra/sweeper=optuna", "hydra.sweeper.n_jobs=2"])
    assert "hydra.sweeper.direction=${sweep.goal}" in searching
    assert "hydra.sweeper.sampler.seed=0" in searching
    assert not any("n_jobs" in word for word in searching)
    grid = sweep_words.settings([*words, "hydra/sweeper=optuna", "hydra/sweeper/sampler=grid"])
    assert not any("seed" in word for word in grid)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("tokens_per_ss", r"Did you mean tokens_per_s\?"),
        ("vall/loss", r"Did you mean val/loss\?"),
        ("zzz", "Expected val/NAME or one of step, "),
    ],
)
def test_a_metric_that_no_run_has_is_refused(metric: str, said: str):
    with pytest.raises(RequestError, match=rf"sweep\.metric={metric}: .*{said}"):
        check(f"sweep.metric={metric}", "seed=1,2")


@pytest.mark.parametrize("metric", ["val/anything", "tokens_per_s", "train/loss"])
def test_a_metric_that_runs_may_have_is_not(metric: str):
    check(f"sweep.metric={metric}", "seed=1,2")
