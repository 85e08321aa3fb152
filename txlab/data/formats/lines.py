"""JSON lines: an object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.formats import long
from txlab.data.formats.compression import opened
from txlab.data.formats.record import BOM, Record, chosen, decoded, kind, whole_text

BLANK = b" \t\r\n"


class Line(Record):
    """A line that is not blank; strings in it stay as they are."""

    def __init__(self, raw: bytes, file: Path, number: int, start: int) -> None:
        self.where = f"{file}, line {number}"
        self.again = len(raw) >= long.LONG
        self._raw = raw
        self._file, self._number, self._start = file, number, start

    def text(self, field: str) -> Iterator[str]:
        place = long.span(self._raw, field) if self.again else None
        done = 0
        if place is not None:
            try:
                for part in long.parts(self._raw, *place):
                    yield part
                    done += len(part)
                return
            except ValueError:  # said below, with its place
                pass
        yield chosen(self._object(f"an object with {field!r}"), field, self._place)[done:]

    def entry(self) -> dict[str, Any]:
        return whole_text(self._object("an object"), self.where)

    @property
    def _place(self) -> str:
        return f"{self.where}, byte {self._start}"

    def _object(self, expected: str) -> dict[str, Any]:
        text = decoded(self._raw, self._file, self._number, self._start)
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            byte = self._start + len(text[: error.pos].encode())
            raise RequestError(
                f"{self.where}, byte {byte}: {error.msg}; expected one JSON object a line."
            ) from error
        except (ValueError, RecursionError) as error:
            raise RequestError(
                f"{self._place}: {str(error).splitlines()[0]}; expected one JSON object a line."
            ) from error
        if not isinstance(found, dict):
            raise RequestError(f"{self._place}: this is a JSON {kind(found)}; expected {expected}.")
        return found


def records(file: Path) -> Iterator[Line]:
    """The lines that are not blank."""
    start, number = 0, 0
    with opened(file) as stream:
        while raw := stream.readline():
            number += 1
            size = len(raw)
            if number == 1:
                raw = raw.removeprefix(BOM)
            begin = start + size - len(raw)
            start += size
            body = raw.strip(BLANK)
            if body:
                begin += raw.index(body[:1])
                line = Line(body, file, number, begin)
                del raw, body
                yield line
