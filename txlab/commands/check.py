"""Check options against their slot's contract: `check SLOT=NAME`, `module:Class` or `all`.

python -m txlab check model.attn=gqa
python -m txlab check my_plugin:Mine
python -m txlab check all
"""

import importlib
import os
import sys
import time
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

    every, begin = targets[0] == "all", time.monotonic()
    counts: Counter[Status] = Counter()
    options: set[str] = set()
    kinds: set[str] = set()
    spared: dict[tuple[str, str], list[str]] = {}
    broken: list[str] = []
    with _chosen(targets[0]) as chosen:
        for number, subject in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {subject}" if every else subject, flush=True)
            option = f"{subject.slot.path}={subject.option.name}"
            options.add(option)
            for result in verdicts(subject):
                counts[result.status] += 1
                kinds.add(result.check)
                if result.status is Status.exempt:
                    names = spared.setdefault((result.check, result.detail), [])
                    names += [] if option in names else [option]
                elif result.status is Status.failed:
                    broken.append(f"  {subject} {result.check}: {result.detail}")
                line = f"  {result.check:<34} {result.status:<7} {result.detail}"
                print(line.rstrip(), flush=True)
    said = ", ".join(f"{counts[status]} {status.lower()}" for status in Status)
    cells = f"{counts.total()} checks"
    if every:
        _summary(broken, spared)
        print(
            f"{len(options)} options, {len(chosen) - len(options)} of them again with their "
            f"switches turned; {len(kinds)} checks; {time.monotonic() - begin:.0f} s"
        )
        cells = f"{counts.total()} cells of option x check"
    print(f"{cells}: {said}")
    return 1 if counts[Status.failed] else 0


def _summary(broken: list[str], spared: dict[tuple[str, str], list[str]]) -> None:
    """What failed, and each reason for an exemption with the options that have it."""
    if broken:
        print("failed:", *broken, sep="\n")
    if spared:
        print("exempt:")
    for (check, reason), names in sorted(spared.items()):
        print(f"  {check}: {reason} ({', '.join(names)})")


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
