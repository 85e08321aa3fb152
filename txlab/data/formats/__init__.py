"""File formats of documents: which there are, and the records of a file one after another."""

from collections.abc import Iterator
from pathlib import Path

from txlab.core.errors import RequestError
from txlab.data.formats import array, columns, lines, plain, table
from txlab.data.formats.compression import COMPRESSED
from txlab.data.formats.record import Record

PLAIN = (".txt", ".md")
LINES = (".jsonl",)
LISTS = (".json",)
"""Read where they are named: a folder may well hold settings under this ending."""
TABLES = {".csv": ",", ".tsv": "\t"}
COLUMNS = (".parquet", ".arrow")
SUFFIXES = (*PLAIN, *LINES, *LISTS, *TABLES, *COLUMNS)
"""Endings that are read; all but columns also with a further `COMPRESSED` one: a.jsonl.gz."""

__all__ = [
    "COLUMNS",
    "COMPRESSED",
    "LINES",
    "LISTS",
    "PLAIN",
    "SUFFIXES",
    "TABLES",
    "kind",
    "records",
]


def kind(file: Path) -> str | None:
    """The ending that says what a file holds, without that of its compression; None: none of ours.

    Columns bring their own compression along.
    """
    *before, last = [suffix.lower() for suffix in file.suffixes[-2:]] or [""]
    if last not in COMPRESSED:
        return last if last in SUFFIXES else None
    inner = before[-1] if before else None
    return inner if inner in SUFFIXES and inner not in COLUMNS else None


def records(file: Path, field: str | None) -> Iterator[Record]:
    """Every record of a file: the whole of a text file, each line or row of others.

    Records with fields are read for this one alone, or for all with None. Errors of the file are
    raised here, those of a record when it is read; both name file and place.
    """
    ending = kind(file)
    if ending in PLAIN:
        return iter([plain.Text(file)])
    if ending in LINES:
        return lines.records(file)
    if ending in LISTS:
        return array.records(file)
    if ending in TABLES:
        return table.records(file, TABLES[ending], field)
    if ending in COLUMNS:
        return columns.records(file, ending, field)
    raise RequestError(f"{file}: expected a file ending in {', '.join(SUFFIXES)}.")
