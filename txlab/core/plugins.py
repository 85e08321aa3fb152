"""Discovery of other people's packages: entry points, `TXLAB_PLUGINS`, `plugins=[module]`.

A plugin is a module whose import registers options. A plugin that fails is reported, remembered
and otherwise ignored; one that was asked for by name is an error.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint

from txlab.core.errors import RequestError

GROUP = "txlab.plugins"
RECIPES = "txlab.recipes"
FAILURES: list[str] = []
"""One line for each plugin that could not be loaded; repeated where a name is unknown."""
_tried: set[str] = set()


def discover() -> None:
    """Load the plugins that `TXLAB_PLUGINS` allows, each once: `off`, names, modules; else all."""
    entries = chosen(GROUP)
    load(sorted(_asked() - _installed()))
    for entry in entries:
        if entry.value in _tried:
            continue
        _tried.add(entry.value)
        try:
            entry.load()
        except (Exception, SystemExit) as error:  # whatever a stranger's module raises
            reason = " ".join(str(error).split())
            line = (
                f"plugin {entry.name!r} ({entry.value}) of {_distribution(entry)} failed to load: "
                f"{type(error).__name__}: {reason}"
            )
            FAILURES.append(line)
            print(f"txlab: warning: {line}", file=sys.stderr)


def chosen(group: str) -> list[EntryPoint]:
    """Entry points of a group that `TXLAB_PLUGINS` allows, sorted by name."""
    found = sorted(importlib.metadata.entry_points(group=group), key=lambda entry: entry.name)
    wanted = os.environ.get("TXLAB_PLUGINS")
    if wanted is None:
        return found
    names, known = _asked(), _installed()
    if missing := [name for name in sorted(names - known) if not _is_module(name)]:
        raise RequestError(
            f"TXLAB_PLUGINS={wanted} names {', '.join(missing)}, which is not installed; "
            f"installed: {', '.join(sorted(known)) or 'none'}, or `off` for none."
        )
    return [entry for entry in found if entry.name in names]


def _asked() -> set[str]:
    words = os.environ.get("TXLAB_PLUGINS", "").split(",")
    return {word.strip() for word in words if word.strip()} - {"off"}


def _installed() -> set[str]:
    groups = (importlib.metadata.entry_points(group=group) for group in (GROUP, RECIPES))
    return {entry.name for group in groups for entry in group}


def _is_module(name: str) -> bool:
    _look_here()
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _look_here() -> None:
    """Find modules in this folder too: the console script does not do so by itself."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def load(modules: Iterable[str]) -> None:
    """Import modules named by the user; a failure is the user's to see."""
    for module in modules:
        if module in _tried:
            continue
        _look_here()
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())
            raise RequestError(
                f"plugins=[{module}] cannot be imported: {type(error).__name__}: {reason}. "
                "Give the name of a module that is installed or stands in this folder."
            ) from error
        _tried.add(module)


def provider(module: str) -> str:
    """Distribution and version that brought `module`, or the module's name where none did."""
    top = module.partition(".")[0]
    if top == "txlab":
        import txlab

        return f"txlab {txlab.__version__}"
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.value.partition(":")[0].partition(".")[0] == top:
            return _distribution(entry)
    names = importlib.metadata.packages_distributions().get(top, [])
    if names:
        return f"{names[0]} {importlib.metadata.version(names[0])}"
    return f"module {module}"


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unnamed distribution"
