"""What ranks agree on before their process group exists: run folder, config, whose turn it is."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

PATIENCE = timedelta(hours=6)
"""How long a rank waits for the first one to prepare the data; a dead one is noticed otherwise."""
QUIET = timedelta(seconds=30)
"""How long the first one waits for the others to come before it says so."""
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_meetings = 0


def started() -> bool:
    """Whether a launcher (ours, torchrun, SLURM) started this process as one of several ranks."""
    tasks = "1" if _interactive() else os.environ.get("SLURM_NTASKS")
    size = os.environ.get("WORLD_SIZE") or tasks or "1"
    return bool(_rank()) and size.isdigit() and int(size) > 1


def leads() -> bool:
    """Whether this process is the one that writes: alone, or rank 0."""
    return (_rank() or "0") == "0"


def can_meet() -> bool:
    """Whether the launcher says where the ranks find each other."""
    _read_slurm()
    return all(os.environ.get(name) for name in _NEEDED)


def told(make: Callable[[], str], what: str) -> str:
    """What rank 0 makes, on every rank; RequestError names it where ranks have no place to meet."""
    global _meetings
    if not started():
        return make()
    if not can_meet():
        raise RequestError(
            f"the ranks cannot agree on {what}: give it, start them with torchrun, or set "
            f"{', '.join(_NEEDED)}."
        )
    _meetings += 1
    key = f"txlab/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{_meetings}"
    if leads():
        value = make()
        _store().set(key, value)
        return value
    return _store().get(key).decode()


@contextlib.contextmanager
def one_by_one() -> Iterator[None]:
    """Rank 0 does what stands inside first, the others when it is done: they find it in a cache."""
    waits = started() and can_meet()
    if waits and not leads():
        told(str, "whose turn it is")
    yield
    if waits and leads():
        told(str, "whose turn it is")


def _interactive() -> bool:
    """Whether a person sits in this SLURM job: a shell is no rank, however many have room."""
    return os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")


def _read_slurm() -> None:
    """Say in torch's own variables what SLURM says of its tasks, where nobody else has.

    The first node of the job is the meeting point, at a port that follows from the job's number.
    """
    here = os.environ
    if here.get("RANK") or not here.get("SLURM_PROCID") or _interactive():
        return
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    nodes = here.get("SLURM_NODELIST") or here.get("SLURM_JOB_NODELIST") or "127.0.0.1"
    found = {
        "RANK": here["SLURM_PROCID"],
        "WORLD_SIZE": here.get("SLURM_NTASKS", "1"),
        "LOCAL_RANK": here.get("SLURM_LOCALID", "0"),
        "NODE_RANK": here.get("SLURM_NODEID", "0"),
        "GROUP_RANK": here.get("SLURM_NODEID", "0"),
        "MASTER_ADDR": SLURMEnvironment.resolve_root_node_address(nodes),
        "MASTER_PORT": str(15000 + int(here.get("SLURM_JOB_ID", "0")[-4:])),
    }
    for name, value in found.items():
        here.setdefault(name, value)


def _rank() -> str | None:
    found = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((rank for rank in found if rank), None)


@cache
def _store() -> "Store":
    """The launcher's key-value store, which the process group is going to use as well."""
    from torch.distributed.rendezvous import rendezvous

    note = threading.Timer(QUIET.total_seconds(), _say_who_waits)
    note.daemon = True
    note.start()
    try:
        store, _, _ = next(iter(rendezvous("env://", timeout=PATIENCE)))
    finally:
        note.cancel()
    return store


def _say_who_waits() -> None:
    here = os.environ
    if leads():
        alone = "SLURM_NTASKS" if "SLURM_NTASKS" in here else "WORLD_SIZE"
        print(
            f"ranks       rank 0 of {here['WORLD_SIZE']} waits for the others at "
            f"{here['MASTER_ADDR']}:{here['MASTER_PORT']}: srun or torchrun starts all of them; "
            f"for one process alone set {alone}=1.",
            file=sys.stderr,
            flush=True,
        )
