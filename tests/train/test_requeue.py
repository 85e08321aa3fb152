"""SLURM's signals, as it sends them: saved, put back into the queue, gone on with; simulated."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer

from tests.train.tiny_run import Run
from txlab.train import checkpoint, launch, requeue
from txlab.train.callbacks import Checkpoints
from txlab.train.requeue import Preempted
from txlab.train.trainer import fit


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


@pytest.fixture
def free():
    """Nobody answers SIGTERM; Lightning goes on doing so after a run that has failed."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_before_its_first_step_a_run_ends_with_75_too(slurm, free, name):
    number = getattr(signal, name)

    def told():
        with requeue.stoppable():
            assert set(requeue.listened_to()) == {*requeue.SIGNALS, requeue.SOON}
            os.kill(os.getpid(), number)

    with pytest.raises(Preempted, match=f"stopped by {name} while no step was") as caught:
        told()
    assert caught.value.exit_status == 75
    assert signal.getsignal(number) == signal.SIG_DFL
    assert slurm.exists() == (name == "SIGUSR1")  # put back into the queue


def test_a_fork_of_a_run_that_has_not_begun_ends_as_it_always_would(free):
    with requeue.stoppable():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_who_answers_already_goes_on_answering():
    """A sweep's own answer to SIGTERM, which ends it after the arm."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with requeue.stoppable():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_ranks_that_had_not_begun_were_stopped_not_killed():
    ends = [launch.End(rank, -signal.SIGTERM, None) for rank in range(2)]
    assert "was killed by SIGTERM" in str(launch.failure(ends))
    found = launch.failure(ends, [signal.SIGTERM])
    assert isinstance(found, Preempted)
    assert "stopped by SIGTERM while no step was under way" in str(found)
    interrupted = {"said": "KeyboardInterrupt:", "known": False, "status": 1, "time": 1.0}
    ends = [launch.End(rank, 1, interrupted) for rank in range(2)]
    assert isinstance(launch.failure(ends, [signal.SIGINT]), KeyboardInterrupt)
    saved = {"said": "stopped by SIGINT at step 2, saved", "known": True, "status": 75, "time": 2.0}
    found = launch.failure([ends[0], launch.End(1, 75, saved)], [signal.SIGINT])
    assert str(found) == "stopped by SIGINT at step 2, saved"


@pytest.mark.parametrize("at", [1, 2])
def test_a_signal_that_comes_while_ranks_agree_is_not_lost(tmp_path, monkeypatch, at):
    """Most signals do: Python hears them when the collective is over. Rank 1 hears it `at` step."""
    trainer: Any = SimpleNamespace(world_size=2, is_global_zero=True, strategy=SimpleNamespace())
    module: Any = SimpleNamespace(counters=SimpleNamespace(step=0), given_up=None)
    watch, asked = Checkpoints(tmp_path, config=""), []
    monkeypatch.setattr(Checkpoints, "save", lambda *_: None)

    def agreed(decision: bool, *, all: bool) -> bool:
        asked.append(decision)
        if len(asked) == at:
            watch._on_signal(signal.SIGTERM, None)
        return decision

    trainer.strategy.reduce_boolean_decision = agreed
    for module.counters.step in range(1, at + 1):
        watch.on_step(trainer, module)
    module.counters.step = at + 1
    with pytest.raises(Preempted, match=f"stopped by SIGTERM at step {at + 1}, saved"):
        watch.on_step(trainer, module)


def test_a_second_interruption_is_one():
    """Lightning ends a process that is interrupted with status 1, as if the run had failed."""
    trainer, wait = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu"), []

    def interrupted(*_: Any) -> None:
        wait.append(signal.getsignal(signal.SIGINT))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "_fit_impl", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(trainer, LightningModule(), LightningDataModule())
    signal.signal(signal.SIGINT, wait[0])  # Lightning leaves it unanswered
