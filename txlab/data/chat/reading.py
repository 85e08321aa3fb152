"""Items read from files: bad lines refused or skipped, everything that is left out counted."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.chat.forms import Entry, Read
from txlab.data.chat.messages import Item

FAULTS = 3
"""Bad lines that are kept to be shown."""


class OnError(StrEnum):
    """What becomes of lines that cannot be read."""

    error = "error"
    """The run is refused."""
    skip = "skip"
    """They are left out and counted."""


@dataclass
class Reading:
    """The items of some files, and what else was met there."""

    items: list[Item] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    """Lines by the form they are written in."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Keys that were left alone, with the lines that have them."""
    faults: list[str] = field(default_factory=list)
    """What is wrong with the first bad lines."""
    unreadable: int = 0
    """Bad lines."""

    @property
    def facts(self) -> dict[str, Any]:
        """What there is to tell, in plain values."""
        told = {"formats": self.formats, "ignored_keys": self.ignored, "faults": self.faults}
        return {
            name: dict(value) if isinstance(value, Counter) else value
            for name, value in told.items()
            if value
        }


def read(found: Sequence[Path], parse: Callable[[Entry, str], Read], on_error: OnError) -> Reading:
    """Every line of files as `parse` understands it; RequestError for a bad one, or it is counted.

    Keys whose value is null are taken for absent.
    """
    reading = Reading()
    for where, entry in files.objects(found):
        try:
            line = {key: value for key, value in entry.items() if value is not None}
            item, form, keys = parse(line, where)
        except RequestError as error:
            if on_error is OnError.error:
                raise
            reading.unreadable += 1
            reading.faults += [str(error)] if len(reading.faults) < FAULTS else []
            continue
        reading.items.append(item)
        reading.formats[form] += 1
        reading.ignored.update(line.keys() - keys)
    return reading
