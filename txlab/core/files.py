"""Files: where the YAML that ships with txlab lies, and texts that are written whole."""

import contextlib
import os
import tempfile
from pathlib import Path

from txlab.core.errors import RequestError, RunError

PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path:
    """The folder `conf` or `recipes`, from the wheel (`txlab/_data`) or the repository."""
    packed = PACKAGE / "_data"
    return (packed if packed.is_dir() else PACKAGE.parent) / name


def refuse_as_new(target: Path, key: str = "") -> None:
    """RequestError where a folder to be written exists already or cannot be made."""
    if target.exists():
        raise RequestError(f"{key}{target} exists: name a folder that does not.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".tmp-"):
            pass
    except OSError as error:
        raise RequestError(
            f"{key}{target} cannot be written ({error.strerror}): name another folder."
        ) from error


def rewrite(file: Path, text: str) -> None:
    """Put `text` in the place of a file, whole or not at all. RunError where the disk refuses."""
    half = file.with_name(f"{file.name}.tmp")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise _refused(file, error) from error


def append(file: Path, text: str) -> None:
    """Add `text` to a file, whole or not at all. RunError where the disk refuses."""
    before = file.stat().st_size if file.exists() else 0
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(file, before)
        raise _refused(file, error) from error


def _refused(file: Path, error: OSError) -> RunError:
    return RunError(
        f"{file} cannot be written ({error.strerror}): make room; a run goes on with resume=auto."
    )
