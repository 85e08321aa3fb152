"""Where documents come from: the sources that a config names, as files."""

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data import files, hub
from txlab.data.cache import absolute
from txlab.data.collection import Source
from txlab.data.corpus import embedded

EMBEDDED = "embedded corpus"


@dataclass
class Part:
    """One entry of data.mix; what it does not say is as beside it."""

    path: str | None = None
    """As data.path; None: the embedded corpus."""
    weight: float = 1.0
    """Its rows among all, in proportion to the other weights; 0: it is held out, all of it."""
    name: str | None = None
    """Name in facts and log; None: that of the file or folder."""
    field: str | None = None
    subset: str | None = None
    split: str | None = None


def parts(entries: list[Any]) -> list[Part]:
    """The entries of data.mix, checked; paths are absolute, every one has a name of its own."""
    known = [field.name for field in fields(Part)]
    found: list[Part] = []
    for number, entry in enumerate(entries, 1):
        where = f"data.mix, entry {number}"
        if not isinstance(entry, Mapping):
            raise RequestError(f"{where}: {entry!r}; expected {{path: PATH, weight: NUMBER}}.")
        for key, value in entry.items():
            if key not in known:
                raise RequestError(f"{where}: unknown key {key!r}; there are: {', '.join(known)}.")
            if key != "weight" and not isinstance(value, str | None):
                raise RequestError(f"{where}: {key}={value!r}; expected text.")
        part = Part(**{str(key): value for key, value in entry.items()})
        weight: Any = part.weight
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e9:
            raise RequestError(f"{where}: weight={weight!r}; expected a number, 0 or more.")
        part.path = located(part.path)
        part.name = part.name or _name(part.path)
        if not re.fullmatch(r"[\w.-]+", part.name):
            raise RequestError(f"{where}: name={part.name!r}; expected letters, digits, _ . and -.")
        if part.name in [other.name for other in found]:
            raise RequestError(f"{where}: there are two sources {part.name!r}; give name=NAME.")
        found.append(part)
    return found


def located(path: str | None) -> str | None:
    """The path seen from the launch folder; names of the hub stay as they are."""
    return hub.located(path) if path is not None and hub.is_hub(path) else absolute(path)


def source(part: Part, cache: Path) -> tuple[Source, dict[str, Any]]:
    """The files of a source, and what is known about their origin."""
    path, field = part.path, part.field or "text"
    if path is None:
        if field != "text":
            raise RequestError(f"data.field={field} is for files: give data.path=FILE as well.")
        corpus = embedded(cache)
        return Source(part.name or EMBEDDED, EMBEDDED, [corpus.file], field), {
            "python": platform.python_version(),
            "dropped_repeated": corpus.repeated,
            "dropped_short": corpus.short,
        }
    if hub.is_hub(path):
        found = [hub.fetch(path, field, part.subset, part.split or "train", cache)]
    else:
        found = files.find(path)
    return Source(part.name or path, path, found, field), {
        "files": len(found),
        **({"unread_files": n} if (n := files.unread(path)) else {}),
    }


def _name(path: str | None) -> str:
    if path is None:
        return "embedded"
    words = [word for word in re.split(r"[\\/]", path) if not re.search(r"[*?\[]", word)]
    stem = os.path.basename(words[-1] if words else path).split(".")[0]
    return re.sub(r"[^\w.-]+", "-", stem).strip("-") or "source"
