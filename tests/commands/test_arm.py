"""Signals in the process of a launcher: what trains saves itself before it is put back."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from txlab.commands import arm


@pytest.fixture
def preempted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """As in a job of submitit, whose handler is counted; all is put back."""
    calls: list[int] = []
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR2)}
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setattr(arm, "main_process", None)
    monkeypatch.setattr(arm, "_stopped", False)
    monkeypatch.setattr(arm._SaveFirst, "told", None)
    signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    yield calls
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_job_that_trains_is_told_to_save_before_it_is_put_back(preempted: list[int]):
    arm._listen()
    arm._listen()  # the second arm of this process
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))  # as training does
    os.kill(os.getpid(), signal.SIGUSR2)
    assert (told, preempted) == ([signal.SIGTERM], [])
    assert arm._SaveFirst.told is not None
    arm._SaveFirst.told.requeue(signal.SIGUSR2, None)
    assert preempted == [signal.SIGUSR2]


def test_a_job_that_does_not_train_yet_is_put_back_at_once(preempted: list[int]):
    arm._listen()
    os.kill(os.getpid(), signal.SIGUSR2)
    assert preempted == [signal.SIGUSR2]


def test_a_process_that_was_asked_to_stop_starts_no_further_arm(
    preempted: list[int], monkeypatch: pytest.MonkeyPatch
):
    arm._listen()
    os.kill(os.getpid(), signal.SIGTERM)
    nothing: Any = None
    assert arm.run(nothing) is None


def test_the_process_of_the_sweep_keeps_its_own_handlers(
    preempted: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(arm, "main_process", os.getpid())
    before = signal.getsignal(signal.SIGTERM)
    arm._listen()
    assert signal.getsignal(signal.SIGTERM) is before
