"""Files that are made once and kept: where they lie, how they are written whole."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from txlab.core.errors import RequestError, RunError


def absolute(path: str | None) -> str | None:
    """The path seen from the folder the command was started in, `~` expanded; None stays None."""
    return None if path is None else os.path.abspath(os.path.expanduser(path))


def cache_folder(chosen: str | None) -> Path:
    """The chosen folder, or `$XDG_CACHE_HOME/txlab`, or `~/.cache/txlab`; made if absent."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(chosen) if chosen is not None else Path(base) / "txlab"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise RequestError(
            f"cannot write to the cache folder {folder}: {error.strerror}; "
            "name another one with data.cache_dir=FOLDER."
        ) from error
    return folder


def key(**settings: Any) -> str:
    """A file name for what these settings determine."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@contextlib.contextmanager
def whole(file: Path) -> Iterator[IO[bytes]]:
    """Write `file` under a temporary name beside it; it gets its own name once all is on disk.

    On any error nothing is left behind, and what was there before stays. Safe with several writers
    at once: the last one wins. RunError where the disk refuses.
    """
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
        temporary = None
        _sync_folder(file.parent)
    except OSError as error:
        raise RunError(
            f"cannot write {file}: {error.strerror or error}; make room or name another folder."
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _sync_folder(folder: Path) -> None:
    """Make a rename in this folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
