"""A server sees each step once, through kills, resumes and silence; it is one on this machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import txlab
from tests.train.tracking import histories
from tests.train.tracking.wandb_server import Server, serving

pytestmark = pytest.mark.slow
ROOT = Path(txlab.__file__).parents[1]
PROCESS = """
import os, signal, sys, time
import txlab
from pathlib import Path
from txlab.train.trainer import make_loggers
begin, end, resumed, how = *map(int, sys.argv[1:4]), sys.argv[4]
settings = "{finish_timeout: 5, x_file_stream_transmit_interval: 0.2}"
given = txlab.compose(["logger=wandb", f"+logger.wandb.settings={settings}"]).logger
(logger,) = make_loggers(given, Path("run"), print, resumed)
logger.log_hyperparams({"model": {"dim": 16}})
print("last", logger.inner.last_step)
told = [step for step in range(1, resumed + 1) if step > logger.inner.last_step]
for step in [*told, *range(begin, end)]:
    logger.log_metrics({"step": step, "train/loss": step + resumed / 100}, step)
    if how == "silent" and step == begin + 2:
        time.sleep(1)
        print("now", flush=True)
        sys.stdin.readline()
if how == "killed":
    print("now", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
logger.finalize("success")
"""


def process(folder: Path, server: Server, *words: object, **env: str) -> subprocess.Popen[str]:
    """One that tracks `begin .. end`, having gone back to `resumed`, and ends as `how` says."""
    (folder / "run").mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if k != "WANDB_MODE"}
    place = {"WANDB_API_KEY": "x" * 40, "WANDB_BASE_URL": server.url, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, *map(str, words)],
        cwd=folder,
        env={**kept, **place, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def kill(running: subprocess.Popen[str], enough: Callable[[], bool]) -> None:
    """Kill it once it has tracked all and `enough` is true."""
    until(running)
    deadline = time.monotonic() + 120
    while not enough() and time.monotonic() < deadline:
        time.sleep(0.1)
    running.communicate("die\n", timeout=300)
    assert running.returncode == -signal.SIGKILL


def until(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    while running.stdout.readline().strip() != "now":
        assert running.poll() is None


def steps(server: Server) -> list[int]:
    (run,) = server.runs
    rows = server.rows(run)
    assert [row["_step"] for row in rows] == [row["step"] for row in rows]
    return [row["step"] for row in rows]


def test_a_resumed_run_sends_only_what_the_server_does_not_have(tmp_path):
    with serving() as server:
        first = process(tmp_path, server, 1, 9, 0, "killed")
        kill(first, lambda: bool(server.runs) and len(steps(server)) >= 6)
        first = steps(server)
        assert first == list(range(1, len(first) + 1))
        done = process(tmp_path, server, 6, 13, 5, "ended")
        out, _ = done.communicate(timeout=300)
        assert f"last {len(first)}" in out
        assert done.returncode == 0
        (run,) = server.runs
        # The row that was still open when the process died is not at the server, so it is sent.
        assert steps(server) == list(range(1, 13))
        losses = [row["train/loss"] for row in server.rows(run)]
        sent = len(first)
        assert losses == [*range(1, sent + 1), *(step + 0.05 for step in range(sent + 1, 13))]
        config = [upsert["config"] for upsert in server.upserts if "dim" in upsert["config"]]
        assert config


def test_a_server_that_falls_silent_stops_nothing(tmp_path):
    with serving() as server:
        running = process(tmp_path, server, 1, 50, 0, "silent")
        until(running)
        server.silent = True
        began = time.monotonic()
        out, _ = running.communicate("go on\n", timeout=300)
        assert running.returncode == 0
        assert time.monotonic() - began < 200
        assert "left out" not in out
    (file,) = histories.segments(tmp_path / "run")
    found = [step for step, _ in histories.wandb_history.rows(file)]
    assert found == list(range(1, 50))


def test_offline_files_of_a_killed_and_resumed_run_make_one_history(tmp_path):
    with serving() as server:
        place = {"WANDB_MODE": "offline"}
        kill(process(tmp_path, server, 1, 9, 0, "killed", **place), lambda: True)
        process(tmp_path, server, 6, 13, 5, "ended", **place).communicate(timeout=300)
        files = histories.segments(tmp_path / "run")
        assert len(files) == 2
        for file in files:
            sync = [sys.executable, "-m", "wandb", "sync", str(file.parent)]
            kept = {k: v for k, v in os.environ.items() if k != "WANDB_MODE"}
            here = {"WANDB_API_KEY": "x" * 40, "WANDB_BASE_URL": server.url}
            subprocess.run(sync, env={**kept, **here}, check=True, capture_output=True, timeout=300)
            assert file.with_name(f"{file.name}.synced").exists()
        (run,) = server.runs
        assert steps(server) == list(range(1, 13))
        # Of the steps that were run again there are the new values.
        assert [row["train/loss"] for row in server.rows(run)][5:] == [
            s + 0.05 for s in range(6, 13)
        ]
