"""Ends a run that is asked to stop, and asks SLURM to run its job once more."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from txlab.core.errors import RunError
from txlab.core.signals import answered
from txlab.train import ranks

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What asks a run to save and stop."""
SOON = getattr(signal, "SIGUSR1", None)
"""What SLURM sends ahead of a time limit, by `--signal=USR1@120`: the job is to come again."""


class Preempted(RunError):
    """The run was told to stop and all it has done is saved (exit status 75)."""

    exit_status = 75


class _Early:
    """Ends a run where no step is under way: there is nothing to finish, and nothing to save."""

    def __init__(self) -> None:
        self.process = os.getpid()

    def __call__(self, number: int, frame: Any) -> None:
        if os.getpid() != self.process:  # a fork, a worker, say, that is to end as it always would
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        what = put_back() if number == SOON and ranks.leads() else "go on with resume=auto"
        raise Preempted(f"{early(number)}; {what}.")


def early(number: int) -> str:
    """What is said of a run that was stopped before its first step, or after its last one."""
    return f"stopped by {signal.Signals(number).name} while no step was under way"


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Inside of this SIGTERM and SIGUSR1 end the run with status 75, as they do in its steps.

    Those that somebody else answers are theirs; Ctrl-C is Python's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [n for n in (signal.SIGTERM, SOON) if n is not None]
    free = [n for n in numbers if signal.getsignal(n) == signal.SIG_DFL]
    with answered(free, _Early()):
        yield


def listened_to() -> list[int]:
    """The signals that a run may answer: somebody else's answer to SIGUSR1 stays theirs."""
    found: list[int] = list(SIGNALS)
    if SOON is not None:
        now: Any = signal.getsignal(SOON)
        # Lightning's own answer in a SLURM job saves a file that txlab does not read.
        foreign = not isinstance(now, _Early) and not type(now).__module__.startswith("lightning")
        if now in (None, signal.SIG_DFL) or not foreign:
            found.append(SOON)
    return found


def put_back() -> str:
    """Have SLURM put this job back into its queue; what came of it, in words."""
    job = job_id()
    if job is None:
        return "go on with resume=auto"
    if shutil.which("scontrol") is None:
        return f"job {job} was not put back into the queue: there is no scontrol here"
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
    if done.returncode:
        why = " ".join(done.stderr.split())[:160]
        return f"job {job} was not put back into the queue ({why}); go on with resume=auto"
    return f"job {job} is back in the queue, and goes on if its command has run_dir and resume=auto"


def job_id() -> str | None:
    """This job's number in SLURM, with that in its array; None outside of SLURM."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID") or None
