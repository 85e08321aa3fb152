"""Scaffold a package with an option of your own: file, config, entry point, test.

python -m txlab new model.attn mine
python -m txlab new model.norm mine dir=plugins/mine

The option starts as the slot's usual one under a new name (a backend as `math`, an adapter as
`lora`: their usual ones do nothing themselves), so it passes its contract as created.
"""

import importlib
import keyword
import os
import re
import shutil
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError, RunError
from txlab.core.files import refuse_as_new
from txlab.core.hydra import registry
from txlab.core.slot import Slot, slot_at

STARTS = {"model.backend": "math", "adapter": "lora"}
"""Options to start from where the usual one does nothing itself."""
MODULE = '''"""{Name}: what it does, in a line."""

from dataclasses import dataclass

{imports}


@{decorator}("{name}")
class {Name}({Base}):
    """{Base} under another name: say here what it does (Author et al. 2026)."""

    @dataclass
    class Config({Base}.Config):
        """Fields of {name}, each with a default that is valid at every size."""
'''
PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "txlab-{dashed}"
version = "0.1.0"
description = "{slot}={name} for txlab"
requires-python = ">=3.11"
dependencies = ["txlab"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."txlab.plugins"]
{name} = "txlab_{name}"

[tool.hatch.build.targets.wheel]
include = ["txlab_{name}.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""
TEST = '''"""The contract of {slot}={name}: what every option of the slot promises."""

import txlab_{name}  # noqa: F401
from txlab.testing import Check, Subject, parametrize_with_contracts


@parametrize_with_contracts(options=["{slot}={name}"])
def test_contract(option: Subject, check: Check) -> None:
    check(option)
'''
README = """# txlab-{dashed}

`{slot}={name}` for txlab.

    pip install -e .
    python -m txlab show {slot}={name}
    python -m txlab check {slot}={name}

Without installing, from this folder: `python -m txlab check {slot}={name} plugins=[txlab_{name}]`.
"""


def main(words: list[str]) -> None:
    """Write the package; RequestError for a bad name or a folder that exists."""
    folders = [word.partition("=")[2] for word in words if word.startswith("dir=")]
    names = [word for word in words if not word.startswith("dir=")]
    if len(names) != 2 or len(folders) > 1:
        given = " ".join(words) or "nothing"
        raise RequestError(f"new takes SLOT NAME and maybe dir=FOLDER, not {given}.")
    registry.ready()
    slot, name = slot_at(names[0].replace("/", ".")), names[1]
    check_name(slot, name)
    target = Path(os.path.expanduser(folders[0])) if folders else Path(name)
    refuse_as_new(target)
    write(target, files(slot, name))
    print(f"{target}: {slot.path}={name}, a package with entry point and test")
    print(f"  cd {target} && python -m txlab check {slot.path}={name} plugins=[txlab_{name}]")
    print(f"  pip install -e {target}    # then {slot.path}={name} works everywhere")


def check_name(slot: Slot[Any], name: str) -> None:
    """RequestError unless `name` can be an option's, a module's and a package's."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise RequestError(
            f"new {slot.path} {name}: a name is a small letter, then small letters, digits and _."
        )
    if name in slot.options:
        there = slot.options[name]
        raise RequestError(
            f"new {slot.path} {name}: {slot.path} has an option of that name ({there.module}); "
            "take another."
        )


def files(slot: Slot[Any], name: str) -> dict[str, str]:
    """The package's files by path."""
    base = usual(slot)
    title = "".join(part.capitalize() for part in name.split("_"))
    places = sorted({(place(base), base.__name__), (place(slot.interface), decorator(slot))})
    words = {
        "slot": slot.path,
        "name": name,
        "dashed": name.replace("_", "-"),
        "Name": f"My{title}" if title == base.__name__ else title,
        "Base": base.__name__,
        "decorator": decorator(slot),
        "imports": imports(places),
    }
    made = {
        f"txlab_{name}.py": MODULE,
        "pyproject.toml": PROJECT,
        f"tests/test_{name}.py": TEST,
        "README.md": README,
    }
    return {path: text.format(**words) for path, text in made.items()}


def imports(places: list[tuple[str, str]]) -> str:
    """Import lines of names, those of one module in one line."""
    modules = sorted({module for module, _ in places})
    lines = []
    for module in modules:
        names = sorted((n for m, n in places if m == module), key=lambda n: (n.islower(), n))
        lines.append(f"from {module} import {', '.join(names)}")
    return "\n".join(lines)


def usual(slot: Slot[Any]) -> type:
    """The class to start from: that of a config in this slot where nobody chooses."""
    if slot.path in STARTS:
        return slot.option(STARTS[slot.path]).cls
    from txlab.schema import Config

    value: Any = Config()
    for part in slot.path.split("."):
        value = getattr(value, part)
    return slot.option_of(value).cls


def decorator(slot: Slot[Any]) -> str:
    """What the slot is called where it is declared."""
    module = importlib.import_module(slot.interface.__module__)
    return next(name for name, value in vars(module).items() if value is slot)


def place(cls: type) -> str:
    """The nearest package to the root that has the class: `txlab.nn.attention` for MHA."""
    parts = cls.__module__.split(".")
    for n in range(2, len(parts)):
        package = ".".join(parts[:n])
        if getattr(importlib.import_module(package), cls.__name__, None) is cls:
            return package
    return cls.__module__


def write(target: Path, texts: dict[str, str]) -> None:
    """All files or none; RunError where the disk does not take them."""
    folder = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    try:
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        folder.rename(target)
    except OSError as error:
        raise RunError(f"writing {target} failed ({error}): make room and try again.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
