"""Text files: a file is a document."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.formats.compression import opened
from txlab.data.formats.record import BOM, Record, no_utf8

SPAN = 1 << 22
"""Bytes read at once."""


class Text(Record):
    """A whole file; line ends become "\\n", a byte order mark goes."""

    again = True

    def __init__(self, file: Path) -> None:
        self.file = file
        self.where = str(file)

    def text(self, field: str) -> Iterator[str]:
        with opened(self.file) as stream:
            raw = stream.read(SPAN)
            start = len(BOM) if raw.startswith(BOM) else 0
            raw, line, held = raw[start:], 1, ""
            while True:
                more = stream.read(SPAN)
                try:
                    text, used = codecs.utf_8_decode(raw, "strict", not more)
                except UnicodeDecodeError as error:
                    raise no_utf8(raw, error.start, self.file, line, start) from error
                text = held + text
                # The second half of a "\r\n" may be in the next part.
                held = "\r" if more and text.endswith("\r") else ""
                yield text[: len(text) - len(held)].replace("\r\n", "\n").replace("\r", "\n")
                if not more:
                    return
                line += raw.count(b"\n", 0, used)
                start, raw = start + used, raw[used:] + more

    def entry(self) -> dict[str, Any]:
        raise RequestError(
            f"{self.where}: expected a .jsonl file, a table or columns; a text has no fields."
        )
