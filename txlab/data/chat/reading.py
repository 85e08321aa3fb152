"""Items read from files: bad lines refused or skipped, everything that is left out counted."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.chat.forms import Entry, Read
from txlab.data.chat.messages import Item
from txlab.data.collection import OnError
from txlab.data.formats import records
from txlab.data.formats.record import Record

FAULTS = 3
"""Bad lines that are kept to be shown."""


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
    """Bad lines and rows."""
    unreadable_files: int = 0
    """Files that are damaged; what comes before the damage is read."""

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
    """Every line or row of files as `parse` understands it; bad ones are refused or counted.

    Keys whose value is null are taken for absent.
    """
    reading = Reading()
    for file in found:
        try:
            for record in records(file, None):
                try:
                    _add(reading, record, parse)
                except RequestError as error:
                    _fault(reading, error, on_error)
                    reading.unreadable += 1
        except RequestError as error:
            _fault(reading, error, on_error)
            reading.unreadable_files += 1
    return reading


def _add(reading: Reading, record: Record, parse: Callable[[Entry, str], Read]) -> None:
    line = {key: value for key, value in record.entry().items() if value is not None}
    item, form, keys = parse(line, record.where)
    reading.items.append(item)
    reading.formats[form] += 1
    reading.ignored.update(line.keys() - keys)


def _fault(reading: Reading, error: RequestError, on_error: OnError) -> None:
    if on_error is OnError.error:
        raise error
    reading.faults += [str(error)] if len(reading.faults) < FAULTS else []
