"""The ids of items on disk, and which items a template has refused on the way there."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.cache import whole
from txlab.data.chat.items import named
from txlab.data.chat.messages import Item
from txlab.data.chat.reading import FAULTS
from txlab.data.store import StoreWriter, refusal

DONE = "done"
Encode = Callable[[Item], list[list[list[int]]]]
"""Ids of an item for each of its stores, as one or more documents."""


@dataclass(frozen=True)
class Refused:
    """Items whose ids were not written."""

    numbers: Mapping[str, Sequence[int]]
    """By part of the data."""
    faults: Sequence[str]
    """Why, for the first of them."""

    @classmethod
    def read(cls, folder: Path) -> "Refused":
        """What `write` has left in its folder; RequestError where that is damaged."""
        file = folder / DONE
        try:
            return cls(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise refusal(file, "it cannot be read") from error


def write(
    folder: Path,
    parts: Mapping[str, Sequence[Item]],
    stores: Sequence[str],
    encode: Encode,
    *,
    skip: bool,
    **about: Any,
) -> None:
    """Write the items of each part into files named `PART.STORE`, and a list of those left out.

    With `skip` those are the items that `encode` refuses; else the first one is a RequestError.
    `about` says what the ids are made of.
    """
    refused: dict[str, list[int]] = {part: [] for part in parts}
    faults: list[str] = []
    for part, items in parts.items():
        with contextlib.ExitStack() as stack:
            opened = [StoreWriter(folder / f"{part}.{end}", **about) for end in stores]
            writers = [stack.enter_context(writer) for writer in opened]
            for number, item in enumerate(items):
                try:
                    with named(item):
                        encoded = encode(item)
                except RequestError as error:
                    if not skip:
                        raise
                    refused[part].append(number)
                    faults.append(str(error))
                    continue
                for writer, documents in zip(writers, encoded, strict=True):
                    for ids in documents:
                        writer.add(ids)
                        writer.end()
    with whole(folder / DONE) as stream:
        stream.write(json.dumps({"numbers": refused, "faults": faults[:FAULTS]}).encode())
