"""The arms of a sweep: a folder each, known by what the arm is made of, so that it is found again.

An arm's `outcome.json` is all that its process and the sweep's tell each other: launchers may run
it anywhere.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from txlab.core.errors import RequestError
from txlab.core.hydra.saved import to_yaml

if TYPE_CHECKING:
    from txlab.schema import Config

OUTCOME, HELD = "outcome.json", ".held"
PREEMPTED = 75
UNENDED = "it did not end: killed, or its machine went down; resume=auto goes on with it"

Outcome = dict[str, Any]
"""`config`: identity; `overrides`; `status`: exit status, None until the end; `result`: figures,
or what went wrong in one line."""


def identity(config: "Config") -> str:
    """Fingerprint of what an arm is: two with the same one would come to the same result."""
    from txlab.schema import Sweep

    told = dataclasses.replace(config, run_dir=None, resume=None, logger=None, sweep=Sweep())
    return fingerprint(to_yaml(told))


def identity_of_refused(tree: DictConfig) -> str:
    """Fingerprint of a composed tree that is no valid config."""
    plain = OmegaConf.to_container(tree, resolve=False)
    assert isinstance(plain, dict)
    kept = {key: value for key, value in plain.items() if key not in ("resume", "logger", "sweep")}
    return fingerprint(json.dumps(kept, sort_keys=True, default=str))


def claimed(sweep: Path, key: str, number: int, words: Sequence[str], **more: Any) -> Path:
    """The folder of the arm `key`: the one it had before, or a new one, `number` if it is free.

    `more` is kept in its outcome.
    """
    with _locked(sweep):
        for folder, outcome in found(sweep):
            if outcome.get("config") == key:
                return folder
        names = {entry.name for entry in sweep.iterdir()}
        if str(number) in names:
            number = 1 + max(int(name) for name in names if name.isdigit())
        folder = sweep / str(number)
        folder.mkdir()
        record(folder, key, words, **more)
    return folder


def claimed_as_named(folder: Path, key: str, words: Sequence[str]) -> Path:
    """A folder named by `hydra.sweep.subdir`; RequestError where another arm has it."""
    folder.mkdir(parents=True, exist_ok=True)
    there = read(folder)
    if there is not None and there.get("config") != key:
        raise RequestError(
            f"hydra.sweep.subdir: {folder} is the folder of another run of this sweep "
            f"({' '.join(there['overrides'])}): name all keys that vary, or leave it out."
        )
    if there is None:
        record(folder, key, words)
    return folder


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Whether this process has the arm for itself, until the block or the process ends."""
    with (folder / HELD).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # the file system knows no locks
            pass
        yield True


def record(
    folder: Path,
    key: str,
    words: Sequence[str],
    status: int | None = None,
    result: dict[str, Any] | str = "",
    **more: Any,
) -> None:
    """Leave in the arm's folder what came of it; written whole."""
    outcome = {"config": key, "overrides": list(words), "status": status, "result": result, **more}
    half = folder / f"{OUTCOME}.tmp"
    half.write_text(json.dumps(outcome, default=str, indent=1), encoding="utf-8")
    half.replace(folder / OUTCOME)


def read(folder: Path) -> Outcome | None:
    """What an arm left; None where the folder is no arm's."""
    try:
        return json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RequestError(f"{folder / OUTCOME} is damaged: remove {folder}.") from error


def found(sweep: Path) -> list[tuple[Path, Outcome]]:
    """Every arm of a sweep's folder with its outcome, by number."""
    files = [*sweep.glob(f"*/{OUTCOME}"), *sweep.glob(f"*/*/{OUTCOME}")]
    folders = sorted((file.parent for file in files), key=lambda f: (len(f.name), str(f)))
    read_all = ((folder, read(folder)) for folder in folders)
    return [(folder, outcome) for folder, outcome in read_all if outcome is not None]


def ended(sweep: Path) -> list[tuple[Path, Outcome]]:
    """`found`, where an arm that no process holds and that has no end has failed."""
    arms = []
    for folder, outcome in found(sweep):
        if outcome["status"] is None:
            with held(folder) as free:
                if free:
                    outcome = {**outcome, "status": 1, "result": UNENDED}
        arms.append((folder, outcome))
    return arms


@contextlib.contextmanager
def _locked(sweep: Path) -> Iterator[None]:
    """One process at a time looks for arms and makes new ones."""
    sweep.mkdir(parents=True, exist_ok=True)
    handle = os.open(sweep, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def fingerprint(text: str) -> str:
    """Enough of a hash to tell the arms of a sweep apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
