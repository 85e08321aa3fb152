"""A JSON list of objects; a file of JSON lines may end in .json as well."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.formats import lines
from txlab.data.formats.compression import opened
from txlab.data.formats.record import BOM, Record, chosen, decoded, kind, whole_text

EXPECTED = "expected a list of JSON objects"
BEFORE = (b" ", b"\t", b"\r", b"\n", *(bytes([byte]) for byte in BOM))
"""What a list may begin after."""


class Element(Record):
    """An element of the list."""

    again = True

    def __init__(self, where: str, value: Any) -> None:
        self.where = where
        self._value = value

    def text(self, field: str) -> Iterator[str]:
        yield chosen(self._object(), field, self.where)

    def entry(self) -> dict[str, Any]:
        return whole_text(self._object(), self.where)

    def _object(self) -> dict[str, Any]:
        if not isinstance(self._value, dict):
            raise RequestError(f"{self.where}: this is a JSON {kind(self._value)}; {EXPECTED}.")
        return self._value


def records(file: Path) -> Iterator[Record]:
    """The elements of the list, which is in memory as a whole; or lines, where it is none."""
    with opened(file) as stream:
        while (start := stream.read(1)) in BEFORE:
            pass
    return _elements(file) if start == b"[" else lines.records(file)


def _elements(file: Path) -> Iterator[Element]:
    with opened(file) as stream:
        raw = stream.read()
    body = raw.removeprefix(BOM)
    text = decoded(body, file, 1, len(raw) - len(body))
    decoder, line, seen = json.JSONDecoder(), 1, 0
    place = _next(text, text.index("[") + 1)
    while text[place : place + 1] != "]":
        line, seen = line + text.count("\n", seen, place), place
        where = f"{file}, line {line}"
        try:
            value, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise _broken(file, text, error.pos, error.msg) from error
        except (ValueError, RecursionError) as error:
            raise _broken(file, text, place, str(error).splitlines()[0]) from error
        yield Element(where, value)
        place = _next(text, end)
        if text[place : place + 1] == ",":
            place = _next(text, place + 1)
        elif text[place : place + 1] != "]":
            raise _broken(file, text, place, "no ',' or ']' after an element")
    if _next(text, place + 1) < len(text):
        raise _broken(file, text, _next(text, place + 1), "text after the list")


def _next(text: str, place: int) -> int:
    """The next place that is not blank."""
    while text[place : place + 1] in (" ", "\t", "\r", "\n"):
        place += 1
    return place


def _broken(file: Path, text: str, place: int, reason: str) -> RequestError:
    line, byte = text.count("\n", 0, place) + 1, len(text[:place].encode())
    return RequestError(f"{file}, line {line}, byte {byte}: {reason}; {EXPECTED}.")
