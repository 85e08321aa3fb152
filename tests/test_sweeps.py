"""Sweeps from the command line: resumed, stopped, searched, launched in other processes."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import yaml

from tests.test_command_line import txlab
from tests.test_plugin import run
from txlab.core.hydra import arms
from txlab.core.hydra.sweep_files import choices_of
from txlab.train import checkpoint
from txlab.train.callbacks.log import read_rows

ROOT = Path(__file__).parents[1]
FAST = ["debug=fast", "train.steps=2", "train.sample=null", "data.path=text.txt"]
FAST += ["data.cache_dir=cache", "trainer.accelerator=cpu"]


def made(there: Path) -> Path:
    lines = (f"Line {i} of {i * 7 % 13}." for i in range(200))
    (there / "text.txt").write_text("\n\n".join(lines))
    return there


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return made(tmp_path)


def status_of(said: str) -> int:
    return int(said.splitlines()[-1].removeprefix("-> "))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """One process, several sweeps: where it all lies, and what each command printed."""
    there = made(tmp_path_factory.mktemp("sweeps"))
    sweep = [*FAST, "-m", "optim.lr=1e-3", "run_dir=s"]
    search = [*FAST, "-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "run_dir=o"]
    search += ["optim.lr=tag(log,interval(1e-4,1e-2))", "model.n_heads=4,5"]
    saved = there / "s" / "0" / "checkpoints" / "step-000002"
    lines = {
        "first": [*sweep, "seed=1,2"],
        "refused": [*sweep, "seed=1,2,3"],
        "again": [*sweep, "seed=3,2,1", "resume=auto"],
        "own file": [*FAST, "optim.lr=1e-3", "seed=1", f"resume={saved}"],
        "metric": [*sweep, "seed=3,2,1", "resume=auto", "sweep.metric=val/accuracy"],
        "misspelt": [*FAST, "-m", "seed=1,2", "run_dir=m", "sweep.metric=val/lss"],
    }
    if find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_optuna_sweeper"):
        lines |= {"search": search, "search again": [*search, "resume=auto"]}
    return there, dict(zip(lines, run(list(lines.values()), there, []), strict=True))


def test_a_sweep_goes_on_with_what_is_not_done(told: tuple[Path, dict[str, str]]):
    """Done arms are kept, wherever they stand in the list now; new ones are added."""
    there, said = told
    assert [status_of(said[name]) for name in ("first", "refused", "again")] == [0, 2, 0]
    assert "holds a sweep already: resume=auto goes on with it" in said["refused"]
    assert re.findall(r"run (\d) is done already: kept", said["again"]) == ["1", "0"]
    assert said["again"].count("plan  ") == 1
    seeds = [choices_of(outcome)["seed"] for _, outcome in arms.found(there / "s")]
    assert seeds == ["1", "2", "3"]
    for folder, outcome in arms.found(there / "s"):
        saved = yaml.safe_load((folder / "config.yaml").read_text())
        assert f"seed={saved['seed']}" in outcome["overrides"]
    assert re.search(r"^│ 3 │ .* ± ", said["again"].split("over seeds")[1], re.MULTILINE)


def test_what_a_sweep_writes_can_be_named_on_the_command_line(told: tuple[Path, dict[str, str]]):
    """HYD-01: no name of ours has a letter that Hydra's grammar or a shell reads otherwise."""
    there, said = told
    assert status_of(said["own file"]) == 0, said["own file"]
    names = [path.name for path in (there / "s").rglob("*")]
    assert [name for name in names if not re.fullmatch(r"[\w.-]+", name)] == []


def test_a_figure_that_is_not_there_is_no_failure_of_runs_that_are_done(
    told: tuple[Path, dict[str, str]],
):
    there, said = told
    assert status_of(said["metric"]) == 2
    assert "sweep.metric=val/accuracy is no figure of this run; it has " in said["metric"]
    assert [outcome["status"] for _, outcome in arms.found(there / "s")] == [0, 0, 0]


def test_a_sweep_by_a_figure_that_its_runs_will_not_have_ends_before_the_first(
    told: tuple[Path, dict[str, str]],
):
    there, said = told
    assert status_of(said["misspelt"]) == 2
    assert said["misspelt"].count("sweep.metric=val/lss: the run will have no such figure") == 1
    assert "plan  " not in said["misspelt"]
    assert not (there / "m").exists()


def test_optuna_searches_past_what_fails_and_goes_on(told: tuple[Path, dict[str, str]]):
    there, said = told
    if "search" not in said:
        pytest.skip("hydra-optuna-sweeper is not installed: pip install 'txlab[optuna]'")
    found = arms.found(there / "o")
    statuses = [outcome["status"] for _, outcome in found]
    assert sorted(set(statuses)) == [0, 2]
    assert status_of(said["search"]) == 2
    best = min(o["result"]["val/loss"] for _, o in found if o["status"] == 0)
    assert f"Best value: {best}" in said["search"]
    assert "WARNING" not in said["search"]
    # The same proposals come again, and those that are done are kept.
    assert len(arms.found(there / "o")) == 3
    assert said["search again"].count("is done already: kept") == statuses.count(0)
    assert f"Best value: {best}" in said["search again"]


PLUGIN = """
from dataclasses import dataclass
from txlab.nn.attention import MHA, attention

@attention("mine")
class Mine(MHA):
    \"\"\"An attention of this folder.\"\"\"

    @dataclass
    class Config(MHA.Config):
        pass
"""


def start(there: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "txlab", *FAST, *words],
        cwd=there,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(process: "subprocess.Popen[str]", there: Path, pattern: str, count: int) -> None:
    """Wait for files; AssertionError where the process ends before."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if len(list(there.glob(pattern))) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{pattern}: {[str(p) for p in there.rglob('*') if p.is_file()]}")


def left_of(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run after ten seconds: a launcher's workers notice its end by themselves."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(map(runs, processes)):
        time.sleep(0.1)
    return list(filter(runs, processes))


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


LAUNCHERS = {
    "joblib": ("hydra_plugins.hydra_joblib_launcher", ["hydra.launcher.n_jobs=2"]),
    "submitit_local": ("hydra_plugins.hydra_submitit_launcher", []),
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_arms_in_other_processes_tell_what_became_of_them(launcher: str, there: Path):
    """Plugins are known there; a failed arm fails the sweep; each has its own folder."""
    module, words = LAUNCHERS[launcher]
    pytest.importorskip(module)
    (there / "mine_of_a_folder.py").write_text(PLUGIN)
    sweep = [*words, "plugins=[mine_of_a_folder]", "model.attn=mine", "model.n_heads=4,5"]
    done = txlab(*FAST, "-m", f"hydra/launcher={launcher}", *sweep, "run_dir=s", cwd=there)
    assert done.returncode == 2, done.stderr[-2000:]
    assert "run 1 failed: model.dim=32 is not a multiple of model.n_heads=5" in done.stdout
    (first, one), (_, two) = arms.found(there / "s")
    assert (one["status"], two["status"]) == (0, 2)
    assert (first / "summary.json").exists()


@pytest.mark.slow
def test_ranks_may_be_tasks_of_a_job(there: Path):
    """As on several machines: SLURM starts the ranks, each of which has the launcher's word."""
    pytest.importorskip(LAUNCHERS["submitit_local"][0])
    words = ["hydra/launcher=submitit_local", "hydra.launcher.tasks_per_node=2", "run_dir=s"]
    words += ["trainer=ddp", "trainer.devices=2", "seed=1,2"]
    done = txlab(*FAST, "-m", *words, cwd=there)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert [o["status"] for _, o in arms.found(there / "s")] == [0, 0]
    for folder in (there / "s" / "0", there / "s" / "1"):
        assert len(checkpoint.find(folder).state()["random"]) == 2  # of two ranks
    again = txlab(*FAST, "-m", *words, "resume=auto", cwd=there)
    assert again.returncode == 0, (again.stdout + again.stderr)[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_stopped_sweep_saves_its_arms_and_goes_on(launcher: str, there: Path):
    words = [] if launcher == "basic" else [f"hydra/launcher={launcher}", *LAUNCHERS[launcher][1]]
    if words:
        pytest.importorskip(LAUNCHERS[launcher][0])
    at_once = 1 if launcher == "basic" else 2
    sweep = ["-m", *words, "seed=1,2,3", "run_dir=s"]
    process = start(there, *sweep, "train.steps=100000")
    until(process, there, "s/*/metrics.csv", at_once)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 75, err[-2000:]
    assert "run_dir=" in err
    assert "resume=auto goes on with it" in err
    assert out.count("stopped") >= at_once
    outcomes = [outcome["status"] for _, outcome in arms.found(there / "s")]
    assert outcomes == [75] * at_once  # none was started after the signal
    assert not left_of(children)


@pytest.mark.slow
def test_a_preempted_job_saves_and_comes_back(there: Path):
    """As SLURM does it: the job is told, saves, is put back, and goes on in the same folder."""
    pytest.importorskip(LAUNCHERS["submitit_local"][0])
    sweep = ["-m", "hydra/launcher=submitit_local", "seed=1", "train.steps=60", "run_dir=s"]
    process = start(there, *sweep)
    until(process, there, "s/0/metrics.csv", 1)
    tasks = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "submitit.core._submit" in child.cmdline()
    ]
    tasks[-1].send_signal(signal.SIGUSR2)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, (out + err)[-2000:]
    assert "1 run " in out
    logs = "".join(file.read_text() for file in there.glob("s/.submitit/*/*_log.out"))
    assert "stopped by SIGTERM at step" in "".join(
        file.read_text() for file in there.glob("s/.submitit/*/*_log.err")
    )
    assert logs.count("plan  ") == 2
    rows = read_rows(there / "s/0/metrics.csv")
    assert [row["step"] for row in rows] == list(range(1, 61))


@pytest.mark.slow
def test_a_killed_sweep_goes_on_from_its_checkpoints(there: Path):
    """SIGKILL: the arm that was in work ends as an unbroken one does, bit for bit."""
    sweep = ["-m", "seed=1,2", "train.steps=60", "train.save_every=5", "run_dir=s"]
    process = start(there, *sweep)
    until(process, there, "s/1/checkpoints/step-*/COMPLETE", 1)
    process.kill()
    process.communicate()
    done = txlab(*FAST, *sweep, "resume=auto", cwd=there)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "run 0 is done already: kept" in done.stdout
    alone = txlab(*FAST, "seed=2", "train.steps=60", "train.save_every=5", "run_dir=a", cwd=there)
    assert alone.returncode == 0
    one, other = (there / place / "checkpoints/step-000060" for place in ("s/1", "a"))
    assert (one / "weights.safetensors").read_bytes() == (
        other / "weights.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_two_runs_of_two_ranks_are_two_folders_two_tracked_runs_and_four_workers(there: Path):
    words = ["trainer=ddp", "trainer.devices=2", "logger=wandb"]
    environment = {"WANDB_MODE": "offline"}
    os.environ |= environment
    try:
        process = start(there, "-m", "seed=1,2", "train.steps=4", *words, "run_dir=s")
    finally:
        os.environ["WANDB_MODE"] = "disabled"
    workers: dict[int, str] = {}
    while process.poll() is None:
        for child in psutil.Process(process.pid).children():  # what ranks start looks like them
            try:
                if "txlab.commands.rank" in child.cmdline():
                    workers[child.pid] = child.environ()["RANK"]
            except psutil.Error:
                continue
        time.sleep(0.1)
    out, err = process.communicate()
    assert process.returncode == 0, err[-2000:]
    assert sorted(workers.values()) == ["0", "0", "1", "1"]
    assert sorted(p.name for p in (there / "s").iterdir() if p.is_dir()) == ["0", "1"]
    assert len(list((there / "s").glob("*/wandb/offline-run-*"))) == 2
    assert "2 runs" in out
