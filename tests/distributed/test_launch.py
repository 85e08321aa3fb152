"""Ranks from one command: one folder, one log, one tracked run; a dead rank ends the others."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from txlab.core.errors import RequestError
from txlab.train import checkpoint, launch
from txlab.train.callbacks.log import read_rows
from txlab.train.launch import End, failure

ROOT = Path(__file__).parents[2]
FAST = ["debug=fast", "train.sample=null", "train.log_every=1", "data.path=text.txt"]
FAST += ["data.cache_dir=cache", "trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2"]
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(
        "\n\n".join(f"Line {i} of {i * 7 % 13}." for i in range(200))
    )
    return tmp_path


def start(
    there: Path,
    *words: str,
    before: list[str] | None = None,
    more: dict[str, str] | None = None,
) -> "subprocess.Popen[str]":
    here = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
    return subprocess.Popen(
        [sys.executable, "-m", *(before or []), "txlab", *words],
        cwd=there,
        env=os.environ | here | (more or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: "subprocess.Popen[str]", status: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == status, err[-3000:]
    return out, err


def the_run(there: Path, steps: int) -> Path:
    (run,) = (there / "runs").iterdir()
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == list(range(1, steps + 1))
    assert len(checkpoint.find(run).state()["random"]) == 2
    return run


def test_one_command_makes_one_run(there: Path):
    """HYD-03, WB-01: also without run_dir, and without advice from torch."""
    out, err = finished(start(there, *FAST, "logger=wandb"))
    run = the_run(there, 2)
    assert "Warning" not in err
    assert out.count("plan  ") == 1
    assert len(list((run / "wandb").glob("offline-run-*"))) == 1


@pytest.mark.slow
def test_torchrun_makes_one_run(there: Path):
    words = [*FAST, "train.val_every=1", "logger=wandb"]
    out, _ = finished(start(there, *words, before=TORCHRUN))
    run = the_run(there, 2)
    assert out.count("plan  ") == 1
    assert len(list((run / "wandb").glob("offline-run-*"))) == 1


@pytest.mark.slow
def test_tasks_of_slurm_make_one_run(there: Path):
    """Started by srun, so to say: the tasks find each other by what SLURM says of the job."""
    slurm = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODELIST": "localhost"}
    slurm |= {"SLURM_JOB_ID": str(10000 + os.getpid() % 10000), "SLURM_JOB_NAME": "tiny"}
    slurm |= {"SLURM_NNODES": "1", "SLURM_NODEID": "0"}
    tasks = []
    for rank in ("0", "1"):
        place = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        tasks.append(start(there, *FAST, more=slurm | place))
    first, second = (finished(one) for one in tasks)
    the_run(there, 2)
    assert first[0].count("plan  ") == 1
    assert "plan  " not in second[0]


@pytest.mark.slow
def test_a_sweep_makes_one_run_a_job(there: Path):
    out, _ = finished(start(there, *FAST, "-m", "seed=1,2", "logger=wandb"))
    (sweep,) = (there / "runs").iterdir()
    assert sorted(p.name for p in sweep.iterdir() if p.is_dir()) == ["0", "1"]
    assert len(list(sweep.glob("*/wandb/offline-run-*"))) == 2
    assert "2 runs" in out
    _, err = finished(start(there, *FAST, "-m", "seed=1,2", before=TORCHRUN), 1)
    assert "leave torchrun away" in err


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp_tp"])
def test_a_dead_rank_ends_the_run(there: Path, strategy: str):
    """The others do not wait for it."""
    words = ["train.steps=100000", "run_dir=here", f"trainer={strategy}"]
    process = start(there, *FAST, *words, "model.vocab_size=512")
    ranks: list[psutil.Process] = []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (there / "here/metrics.csv").exists():
        time.sleep(0.1)
    for child in psutil.Process(process.pid).children():
        ranks += [child] if "txlab.commands.rank" in child.cmdline() else []
    (victim,) = (rank for rank in ranks if rank.environ()["RANK"] == "1")
    began = time.monotonic()
    victim.send_signal(signal.SIGKILL)
    _, err = finished(process, 1)
    assert time.monotonic() - began < 60
    assert "txlab: error: rank 1 of 2 was killed by SIGKILL" in err
    assert not any(rank.is_running() for rank in ranks)


@pytest.mark.slow
def test_a_stop_signal_saves_on_all_ranks(there: Path):
    process = start(there, *FAST, "train.steps=100000", "run_dir=here")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (there / "here/metrics.csv").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = finished(process, 75)
    saved = checkpoint.find(there / "here")
    assert f"at step {saved.step}, saved; go on with resume=auto" in err
    assert "Traceback" not in err


def test_a_refused_request_is_one_line_and_leaves_nothing(there: Path):
    _, err = finished(start(there, *FAST, "data.batch_size=3"), 2)
    assert "data.batch_size=3 is not divisible by 2 ranks" in err
    assert len(err.strip().splitlines()) == 1
    assert not list((there / "runs").glob("*"))


def end(rank: int, code: int, said: str | None = None, **more: object) -> End:
    outcome = {"said": said, "known": False, "status": code, "time": rank, **more}
    return End(rank, code, outcome if said else None)


@pytest.mark.parametrize(
    ("ends", "message", "status"),
    [
        # the others fail because the first one is gone
        ([end(0, 1, "connection closed"), end(1, -9)], "rank 1 of 2 was killed by SIGKILL", 1),
        ([end(0, -6), end(1, 1, "ValueError: x")], "rank 1 of 2: ValueError: x", 1),
        ([end(0, 1, "gone", time=9), end(1, 1, "OSError: first")], "rank 1 of 2: OSError: f", 1),
        ([end(0, 1, "gone"), end(1, 1, "disk full", known=True)], "^disk full$", 1),
        ([end(0, 75, "stopped", known=True), end(1, 75, "stopped", known=True)], "stopped", 75),
        ([end(0, 2, "wrong", known=True)] * 2, "^wrong$", 2),
    ],
)
def test_the_error_of_the_first_rank_to_fail(ends: list[End], message: str, status: int):
    error = failure(ends)
    with pytest.raises(launch.RankError if status != 2 else RequestError, match=message):
        raise error
    assert getattr(error, "exit_status", None) == status
