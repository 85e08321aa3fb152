"""Where the YAML that ships with txlab lies: in the wheel or in the repository."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path:
    """The folder `conf` or `recipes`, from the wheel (`txlab/_data`) or the repository."""
    packed = PACKAGE / "_data"
    return (packed if packed.is_dir() else PACKAGE.parent) / name
