"""SLURM's signals, as it sends them: saved, put back into the queue, gone on with; simulated."""

import os
import signal
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

from tests.train.tiny_run import Run
from txlab.train import checkpoint, requeue
from txlab.train.callbacks.checkpoints import Preempted


class Sent(Callback):
    """A signal that comes in the middle of a step."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.step = number, step

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if pl_module.counters.step + 1 == self.step:  # pyright: ignore
            os.kill(os.getpid(), self.number)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A job of SLURM, whose scontrol writes down what it is asked."""
    tool, asked = tmp_path / "bin" / "scontrol", tmp_path / "asked"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho $@ >> {asked}\ntest $1 = requeue\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    return asked


def stopped(folder: Path, number: int) -> str:
    with pytest.raises(Preempted) as caught:
        Run(folder, 6, dropout=0.1, callbacks=(Sent(number, 3),)).fit()
    assert caught.value.exit_status == 75
    return str(caught.value)


def test_ahead_of_the_time_limit_a_job_is_put_back_and_goes_on(tmp_path, slurm):
    before = signal.getsignal(signal.SIGUSR1)
    said = stopped(tmp_path / "cut", signal.SIGUSR1)
    assert said.startswith("stopped by SIGUSR1 at step 3, saved; job 123 is back in the queue")
    assert slurm.read_text() == "requeue 123\n"
    assert signal.getsignal(signal.SIGUSR1) == before
    found = checkpoint.find(tmp_path / "cut")
    assert found.step == 3
    again = Run(tmp_path / "cut", 6, dropout=0.1, resume=found).fit()
    whole = Run(tmp_path / "whole", 6, dropout=0.1).fit()
    assert all(torch.equal(again.weights()[k], v) for k, v in whole.weights().items())


def test_a_cancelled_job_is_not_put_back(tmp_path, slurm):
    """SIGTERM comes from scancel, too; a preempted job is put back by SLURM itself."""
    assert stopped(tmp_path, signal.SIGTERM).endswith("step 3, saved; go on with resume=auto.")
    assert not slurm.exists()


def test_a_refused_requeue_is_told(tmp_path, slurm, monkeypatch):
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\necho no such job >&2\nexit 1\n")
    assert "123 was not put back into the queue (no such job)" in requeue.put_back()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no scontrol here" in requeue.put_back()
    monkeypatch.delenv("SLURM_JOB_ID")
    assert requeue.put_back() == "go on with resume=auto"


def test_a_task_of_an_array_has_its_own_number(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "125")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "123")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert requeue.job_id() == "123_2"


def test_another_answer_to_the_signal_stays():
    """A launcher's own, such as submitit's."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        assert requeue.listened_to() == [signal.SIGINT, signal.SIGTERM]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert requeue.listened_to()[-1] == signal.SIGUSR1
