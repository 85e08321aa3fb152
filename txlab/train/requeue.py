"""Asks SLURM to run a job once more that had to stop before its end."""

import os
import shutil
import signal
import subprocess
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What asks a run to save and stop."""
SOON = getattr(signal, "SIGUSR1", None)
"""What SLURM sends ahead of a time limit, by `--signal=USR1@120`: the job is to come again."""


def listened_to() -> list[int]:
    """The signals that a run may answer: somebody else's answer to SIGUSR1 stays theirs."""
    found: list[int] = list(SIGNALS)
    if SOON is not None:
        now: Any = signal.getsignal(SOON)
        # Lightning's own answer in a SLURM job saves a file that txlab does not read.
        if now in (None, signal.SIG_DFL) or type(now).__module__.startswith("lightning"):
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
