"""One long string of a JSON object, in parts: the line is not decoded as a whole."""

import json
import re
from collections.abc import Iterator

LONG = 1 << 24
"""Bytes from which on a line is read in parts; shorter ones are parsed at once."""
SPAN = 1 << 22
"""Bytes decoded at once."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_UNITS = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*+",
    re.DOTALL,
)
"""Whole characters and escapes; two escapes that are one character stay together."""
_STAND_IN = "\x00 the long string"


def span(line: bytes, field: str) -> tuple[int, int] | None:
    """Where the string under `field` stands, without its quotes; None: parse the line as a whole.

    So it is where the rest is no JSON object, or a long one, or has no string there.
    """
    key = re.compile(rb"%s\s*:\s*(?=\")" % re.escape(json.dumps(field).encode()))
    for match in key.finditer(line):
        string = _STRING.match(line, match.end())
        if string is None or len(line) - (string.end() - string.start()) >= LONG:
            continue
        begin, end = string.span()
        rest = line[:begin] + json.dumps(_STAND_IN).encode() + line[end:]
        try:
            found = json.loads(rest)
        except (ValueError, RecursionError):
            return None
        if isinstance(found, dict) and found.get(field) == _STAND_IN:
            return begin + 1, end - 1
    return None


def parts(line: bytes, begin: int, end: int) -> Iterator[str]:
    """The text of the string at these places; ValueError where it is none."""
    while begin < end:
        match = _UNITS.match(line, begin, min(begin + SPAN, end))
        stop = begin if match is None else match.end()
        while begin < stop < end and 0x80 <= line[stop] < 0xC0:  # within a character
            stop -= 1
        if stop == begin:
            raise ValueError(f"no JSON string at byte {begin}")
        text = json.loads(b'"' + line[begin:stop] + b'"')
        text.encode("utf-8")
        yield text
        begin = stop
