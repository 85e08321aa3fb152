"""Starts the ranks of a run as processes of their own, on the resolved config, and watches them.

The process that the user started only watches. So it may be one run of a sweep, and a rank that
dies cannot take the others with it into an endless wait.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError, RunError
from txlab.core.signals import answered
from txlab.train.requeue import Preempted, early, listened_to

CONFIG, MODULES, OUTCOME = "config.yaml", "modules.json", "rank-{}.json"
GRACE = 10.0
"""Seconds that the other ranks have for an end of their own once one has failed."""


class RankError(RunError):
    """A rank has failed; ends with its exit status."""

    def __init__(self, said: str, exit_status: int = 1) -> None:
        super().__init__(said)
        self.exit_status = exit_status


@dataclass(frozen=True)
class End:
    """How a rank ended: `returncode` as of subprocess, `outcome` as it left it, if it could."""

    rank: int
    returncode: int
    outcome: dict[str, Any] | None


def run(config: str, modules: list[str], world: int) -> dict[str, Any]:
    """Run `config` (YAML) on `world` ranks; the summary of rank 0.

    `modules` are imported by each rank first. RequestError or RankError says what the first rank to
    fail said.
    """
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    handed = Path(tempfile.mkdtemp(prefix="txlab-ranks-"))
    try:
        (handed / CONFIG).write_text(config, encoding="utf-8")
        (handed / MODULES).write_text(json.dumps(modules), encoding="utf-8")
        # The store lives here, so that its port is known to be free and outlives any rank.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ranks = [_start(rank, world, store.port, handed) for rank in range(world)]
        with _passing_on_signals(ranks) as told:
            _watch(ranks)
        ends = [End(r, p.returncode, _outcome(handed, r)) for r, p in enumerate(ranks)]
    finally:
        shutil.rmtree(handed, ignore_errors=True)
    if all(end.returncode == 0 and end.outcome for end in ends):
        return (ends[0].outcome or {})["result"]
    raise failure(ends, told)


def failure(ends: list[End], told: Sequence[int] = ()) -> BaseException:
    """The error of the rank that failed first, not of those that failed because it was gone.

    `told` are signals that were passed on to them: ranks that do not train yet just end by one.
    """

    def order(end: End) -> tuple[int, float]:
        own = end.outcome is not None and end.outcome["known"]
        killed = end.returncode < 0 and end.returncode not in (-signal.SIGABRT, -signal.SIGTERM)
        when = end.outcome["time"] if end.outcome is not None else float("inf")
        return (0 if own else 1 if killed and end.outcome is None else 2, when)

    end = min((end for end in ends if end.returncode != 0 or end.outcome is None), key=order)
    if told and not (end.outcome is not None and end.outcome["known"]):
        if told[-1] == signal.SIGINT:
            return KeyboardInterrupt()
        return Preempted(f"{early(told[0])}; go on with resume=auto.")
    if end.outcome is None:
        code = end.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return RankError(
            f"rank {end.rank} of {len(ends)} {how}; resume=auto goes on from its last save."
        )
    said, status = end.outcome["said"], end.outcome["status"]
    if end.outcome["known"]:
        return RequestError(said) if status == 2 else RankError(said, status)
    return RankError(f"rank {end.rank} of {len(ends)}: {said}", status)


def leave(handed: Path, rank: int, **outcome: Any) -> None:
    """A rank's last word, written whole."""
    file = handed / OUTCOME.format(rank)
    file.with_suffix(".tmp").write_text(json.dumps(outcome, default=str), encoding="utf-8")
    file.with_suffix(".tmp").replace(file)


def _outcome(handed: Path, rank: int) -> dict[str, Any] | None:
    file = handed / OUTCOME.format(rank)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _start(rank: int, world: int, port: int, handed: Path) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "NODE_RANK": "0",
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        # Within a SLURM job Lightning would take SLURM's word for how many ranks there are.
        "TORCHELASTIC_RUN_ID": "txlab",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "txlab.commands.rank", str(handed)],
        env=environment,
        stdout=None if rank == 0 else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C comes from us, once
    )


def _watch(ranks: "list[subprocess.Popen[bytes]]") -> None:
    """Wait for all; once one has failed, the others have `GRACE` seconds left."""
    deadline = float("inf")
    try:
        while any(process.poll() is None for process in ranks):
            if deadline == float("inf") and any(process.returncode for process in ranks):
                deadline = time.monotonic() + GRACE
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def _passing_on_signals(ranks: "list[subprocess.Popen[bytes]]") -> Iterator[list[int]]:
    """What asks a run to stop goes to every rank, which save and end; we only wait for that.

    Yields the signals that came.
    """
    told: list[int] = []

    def pass_on(number: int, frame: Any) -> None:
        told.append(number)
        for process in ranks:
            if process.poll() is None:
                process.send_signal(number)

    with answered(listened_to(), pass_on):
        yield told
