"""Check options against their slot's contract: `check SLOT=NAME`, `module:Class` or `all`.

python -m txlab check model.attn=gqa
python -m txlab check my_plugin:Mine
python -m txlab check all
"""

import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txlab.core.errors import RequestError
from txlab.core.hydra import prepare, registry
from txlab.core.slot import slot_at

if TYPE_CHECKING:
    from txlab.testing import Subject


def main(words: list[str]) -> int:
    """Print a table of checks; 1 where one failed. RequestError for an option nobody knows."""
    plugins = [word for word in words if word.startswith("plugins=")]
    targets = [word for word in words if word not in plugins]
    if len(targets) != 1:
        given = " ".join(targets) or "nothing"
        raise RequestError(f"check takes SLOT=NAME, module:Class or all, not {given}.")
    prepare(plugins)
    registry.ready()
    from txlab.testing.harness import Status, verdicts

    counts: Counter[Status] = Counter()
    options: set[str] = set()
    spared: Counter[tuple[str, str]] = Counter()
    broken: list[str] = []
    with _chosen(targets[0]) as chosen:
        for subject in chosen:
            print(subject)
            for result in verdicts(subject):
                counts[result.status] += 1
                options.add(f"{subject.slot.path}={subject.option.name}")
                if result.status is Status.exempt:
                    spared[result.check, result.detail] += 1
                elif result.status is Status.failed:
                    broken.append(f"  {subject} {result.check}: {result.detail}")
                line = f"  {result.check:<34} {result.status:<7} {result.detail}"
                print(line.rstrip(), flush=True)
    said = ", ".join(f"{counts[status]} {status.lower()}" for status in Status)
    if len(options) > 1:
        _summary(broken, spared)
        print(f"{len(options)} options, ", end="")
    print(f"{counts.total()} checks: {said}")
    return 1 if counts[Status.failed] else 0


def _summary(broken: list[str], spared: Counter[tuple[str, str]]) -> None:
    """What failed, and each reason for an exemption with the number of options that have it."""
    if broken:
        print("failed:", *broken, sep="\n")
    if spared:
        print("exempt:")
    for (check, reason), count in sorted(spared.items()):
        print(f"  {count:>3} x {check}: {reason}")


@contextmanager
def _chosen(target: str) -> Iterator[list["Subject"]]:
    """The options that a word means; a class nobody registered is one for as long as it lasts."""
    from txlab.testing import lent, subjects

    slot, equals, name = target.partition("=")
    if target == "all":
        yield subjects()
    elif equals:
        place = slot_at(slot.replace("/", "."))
        yield subjects([place.path], [place.option(name).cls])
    elif ":" in target:
        with lent(_class(target)) as subject:
            yield subject.switched()
    else:
        raise RequestError(
            f"check {target}: expected SLOT=NAME such as model.attn=gqa, module:Class, or all."
        )


def _class(target: str) -> type:
    """The class at `module:Class`, from what is installed or stands in this folder."""
    module, _, name = target.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # the console script does not look here by itself
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever a stranger's module raises
        reason = " ".join(str(error).split())
        raise RequestError(
            f"check {target}: {module} cannot be imported: {type(error).__name__}: {reason}."
        ) from error
    cls = getattr(found, name, None)
    if not isinstance(cls, type):
        raise RequestError(f"check {target}: {module} has no class {name!r}.")
    return cls
