"""Reading text from files: which ones a path means, and every document in them, checked."""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.formats import COMPRESSED, LISTS, SUFFIXES, kind, records
from txlab.data.formats.compression import unreadable

_SHOWN = f"{', '.join(SUFFIXES)} (also {', '.join(COMPRESSED)})"


def find(path: str) -> list[Path]:
    """The files that `path` (a file, a folder, a glob pattern) means, in a fixed order."""
    place = Path(path)
    if place.is_dir():
        found = [f for f in _walk(place) if kind(f) not in (None, *LISTS)]
        if not found:
            raise RequestError(f"data.path={path}: the folder holds no {_SHOWN} file.")
    elif os.path.lexists(path) or not glob.has_magic(path):
        found = [place]
        if not os.path.lexists(path):
            raise RequestError(f"data.path={path}: there is no such file, folder or pattern.")
        if kind(place) is None:
            raise RequestError(
                f"data.path={path}: expected a file ending in {_SHOWN}, a folder or a "
                "pattern of such files."
            )
    else:
        matches = {Path(f) for f in glob.glob(path, recursive=True)}
        found = [f for f in matches if kind(f) and not f.is_dir()]
        if not found:
            raise RequestError(
                f"data.path={path}: of {len(matches)} matches none is a {_SHOWN} file."
            )
    for file in found:
        if file.exists() and not file.is_file():
            raise RequestError(f"data.path={path}: {file} is no regular file: it has no end.")
    return sorted(found, key=lambda f: f.as_posix())


def unread(path: str) -> int:
    """Files of a folder that are of no kind that is read."""
    return sum(kind(file) is None for file in _walk(Path(path))) if Path(path).is_dir() else 0


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        yield from (Path(root, f) for f in files if not f.startswith("."))


def digest(files: Sequence[Path]) -> str:
    """sha256 of a file, of several the sha256 of theirs; names and places do not matter."""
    found = []
    for file in files:
        try:
            with open(file, "rb") as stream:
                inner = hashlib.file_digest(stream, "sha256")
        except OSError as error:
            raise unreadable(file, error) from error
        found.append(inner.hexdigest())
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def documents(files: Sequence[Path], field: str) -> Iterator[str]:
    """Every document, blank ones too: a whole .txt or .md file, or `field` of each line or row.

    Line ends of text files become "\\n" and a byte order mark goes; other strings stay as they are.
    """
    return ("".join(r.text(field)) for file in files for r in records(file, field))


def objects(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, all fields) of every line or row; RequestError for a file without fields."""
    return ((r.where, r.entry()) for file in files for r in records(file, None))
