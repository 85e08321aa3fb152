"""Where the YAML that ships with txlab lies: in the wheel or in the repository."""

import tempfile
from pathlib import Path

from txlab.core.errors import RequestError

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
