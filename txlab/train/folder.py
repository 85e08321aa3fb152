"""The folder of a run: new and its own, or the one that is to be continued."""

import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from txlab.core.errors import RequestError, RunError
from txlab.train import checkpoint
from txlab.train.callbacks.log import FILE as METRICS
from txlab.train.checkpoint import Checkpoint
from txlab.train.ranks import leads, started, told

PARENT = Path("runs")


@dataclass(frozen=True)
class Place:
    """Where a run writes, and the checkpoint it goes on from."""

    path: Path
    resumed: Checkpoint | None
    fresh: bool
    """Whether this process made the folder."""


@contextlib.contextmanager
def opened(run_dir: str | None, resume: str | None, name: str) -> Iterator[Place]:
    """The run's folder; a folder made here is removed again when nothing came to stand in it."""
    place = open_folder(run_dir, resume, name)
    # Ranks are in the folder together; the process that started them has it.
    lock = None if started() else _lock(place.path)
    try:
        yield place
    finally:
        if lock is not None:
            os.close(lock)
        if place.fresh:
            with contextlib.suppress(OSError):
                place.path.rmdir()
                if place.path.parent == PARENT.absolute():
                    place.path.parent.rmdir()


def open_folder(run_dir: str | None, resume: str | None, name: str) -> Place:
    """Make or check the folder of a run, and find what is to be resumed."""
    if run_dir == "" or resume == "":
        key = "run_dir" if run_dir == "" else "resume"
        raise RequestError(f"{key}= is empty (a shell variable that is not set?): name a folder.")
    path = None if run_dir is None else Path(run_dir).absolute()
    resumed = None
    if resume == "auto":
        if path is None:
            raise RequestError("resume=auto needs run_dir=FOLDER to look in.")
        resumed = _newest_whole(path / checkpoint.FOLDER)
    elif resume is not None:
        resumed = checkpoint.find(Path(resume).absolute())
        if path is None:
            if resumed.path.parent.name != checkpoint.FOLDER:
                raise RequestError(
                    f"resume={resumed.path} lies in no run folder: name the folder to go on in "
                    "with run_dir=NEW."
                )
            path = resumed.path.parent.parent
        elif leads() and _holds_run(path) and path.resolve() != resumed.path.resolve().parents[1]:
            raise RequestError(
                f"run_dir={path} holds another run than resume={resumed.path}: leave run_dir out "
                "to go on in the resumed run's own folder, name a new one to branch off, or go on "
                f"with what is there by resume=auto run_dir={path}."
            )
    elif path is not None and leads() and _holds_run(path):
        raise RequestError(
            f"run_dir={path} holds a run already: resume=auto goes on with it, "
            "another run_dir starts anew."
        )
    if path is None:
        path = Path(told(lambda: str(_unique(name)), "run_dir"))
        return Place(path, None, leads())
    if not leads():
        return Place(path, resumed, False)
    if resumed is not None and resume != "auto":
        _refuse_newer(path, resumed)
    return Place(path, resumed, _make(path))


def _lock(path: Path) -> int | None:
    """Keep other processes out of the folder until this handle is closed or the process ends.

    None where the file system knows no locks. RequestError where another process is in there.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RequestError(
            f"run_dir={path}: another process is training there: wait for its end, or choose "
            "another run_dir."
        ) from error
    except OSError:
        os.close(handle)
        return None
    return handle


def _unique(name: str) -> Path:
    """A folder nobody else has: the name, the second, and luck; made here, atomically."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    while True:
        path = (PARENT / f"{name.replace('/', '-')}-{stamp}-{secrets.token_hex(3)}").absolute()
        if _make(path):
            return path


def _make(path: Path) -> bool:
    """Make the folder; False where it is there already. RequestError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir()
            made = True
        except FileExistsError:
            made = False
        probe = path / f".probe-{secrets.token_hex(3)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RequestError(
            f"run_dir={path} cannot be written ({error.strerror}): choose another run_dir=FOLDER."
        ) from error
    return made


def _holds_run(path: Path) -> bool:
    return (path / checkpoint.FOLDER).exists() or (path / METRICS).exists()


def _newest_whole(folder: Path) -> Checkpoint | None:
    """The newest checkpoint whose files are what was written; each newer one is said to be passed.

    None where there is none at all; RequestError where all are damaged: none is to be lost by
    starting anew.
    """
    newest_first = checkpoint.complete(folder)[::-1]
    for found, older in itertools.zip_longest(newest_first, newest_first[1:]):
        try:
            found.verify_all()
            return found
        except RequestError as error:
            if older is None:
                raise
            if leads():
                print(f"resume      {error} Going back to {older.path.name}.", flush=True)
    return None


def _refuse_newer(path: Path, resumed: Checkpoint) -> None:
    """A run has one line of history: going back in it needs a folder of its own."""
    folder = path / checkpoint.FOLDER
    newer = [c for c in checkpoint.complete(folder) if c.step > resumed.step]
    if newer:
        raise RequestError(
            f"resume={resumed.path}: {path} goes on to {newer[-1].path.name}; add run_dir=NEW to "
            "branch off, or resume=auto to continue from the newest."
        )


def write_first(place: Place, config: str) -> None:
    """The first files of a run: `config`, and the log of the run that a branch comes from.

    RunError where the disk refuses; none of them is there then.
    """
    file, metrics = place.path / "config.yaml", place.path / METRICS
    half, new = file.with_suffix(".tmp"), not metrics.exists()
    try:
        if place.resumed is not None and new:
            source = place.resumed.path.parent.parent / METRICS
            if source.is_file():  # so that its history has no hole
                shutil.copyfile(source, half)
                half.replace(metrics)
        half.write_text(config, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        for path in (half, metrics) if new else (half,):
            path.unlink(missing_ok=True)
        raise RunError(
            f"{place.path} cannot be written ({error.strerror}): make room, or choose another "
            "run_dir."
        ) from error
