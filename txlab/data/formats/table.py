"""Tables in text: CSV and TSV, with the names of the columns in the first line."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from txlab.core.errors import RequestError
from txlab.data.formats.compression import opened
from txlab.data.formats.record import BOM, Record, chosen, decoded

CELL = (1 << 31) - 1
"""Characters of a cell at most; the library's own limit of 131,072 is for another purpose."""


class Row(Record):
    """A row with a cell for each column, or what is wrong with it."""

    def __init__(self, where: str, entry: dict[str, str] | RequestError) -> None:
        self.where = where
        self._entry = entry

    def text(self, field: str) -> Iterator[str]:
        yield chosen(self.entry(), field, self.where)

    def entry(self) -> dict[str, Any]:
        if isinstance(self._entry, RequestError):
            raise self._entry
        return self._entry


class _Lines:
    """Lines for the csv module, with the place of the record that it is reading."""

    def __init__(self, stream: IO[bytes], file: Path) -> None:
        self.file = file
        self.line, self.byte = 1, 0
        self._stream = stream
        self._raw: list[bytes] = []
        self._bad = False

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        raw = self._stream.readline()
        if not raw:
            raise StopIteration
        if self.line == 1 and self.byte == 0 and not self._raw and raw.startswith(BOM):
            self.byte, raw = len(BOM), raw.removeprefix(BOM)
        self._raw.append(raw)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            # A bad byte must not tear a record apart: it is named when the record is whole.
            self._bad = True
            return raw.decode("utf-8", errors="surrogateescape")

    def check(self) -> None:
        """RequestError where the record read last is no UTF-8."""
        if self._bad:
            decoded(b"".join(self._raw), self.file, self.line, self.byte)

    def advance(self) -> None:
        """The next record begins where the last one ended."""
        self.line += len(self._raw)
        self.byte += sum(map(len, self._raw))
        self._raw.clear()
        self._bad = False

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}, byte {self.byte}"


def records(file: Path, delimiter: str, field: str | None) -> Iterator[Row]:
    """Rows after the first; RequestError where that does not name each column once, or `field`."""
    csv.field_size_limit(CELL)
    with opened(file) as stream:
        lines = _Lines(stream, file)
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        header = _next(rows, lines)
        if header is None:
            return
        if isinstance(header, RequestError):
            raise header
        repeated = [name for name, n in Counter(header).items() if n > 1]
        if repeated:
            raise RequestError(f"{file}, line 1: column {repeated[0]!r} stands there twice.")
        if field is not None:
            chosen(dict.fromkeys(header, ""), field, f"{file}, line 1")
        while True:
            lines.advance()
            where = lines.place
            cells = _next(rows, lines)
            if cells is None:
                return
            if cells != []:
                yield Row(where, _entry(cells, header, where))


def _next(rows: Any, lines: _Lines) -> list[str] | RequestError | None:
    """The next record's cells ([]: a blank line), what is wrong with it, or None at the end."""
    where = lines.place
    try:
        cells = next(rows, None)
        lines.check()
    except RequestError as error:
        return error
    except csv.Error as error:
        return RequestError(f'{where}: {error}; expected a row of the table, quoted by ".')
    return cells


def _entry(
    cells: list[str] | RequestError, header: Sequence[str], where: str
) -> dict[str, str] | RequestError:
    if isinstance(cells, RequestError):
        return cells
    if len(cells) != len(header):
        return RequestError(f"{where}: {len(cells)} cells; expected {len(header)}, as in line 1.")
    return dict(zip(header, cells, strict=True))
