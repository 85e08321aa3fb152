"""Reading text from files: which ones a path means, and every document in them, checked."""

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError

TEXT = (".txt", ".md")
SUFFIXES = (*TEXT, ".jsonl")
BOM = b"\xef\xbb\xbf"


def find(path: str) -> list[Path]:
    """The files that `path` (a file, a folder, a glob pattern) means, in a fixed order."""
    place = Path(path)
    if place.is_dir():
        found = [f for f in _walk(place) if f.suffix.lower() in SUFFIXES]
        if not found:
            raise RequestError(f"data.path={path}: the folder holds no {', '.join(SUFFIXES)} file.")
    elif os.path.lexists(path) or not glob.has_magic(path):
        found = [place]
        if not os.path.lexists(path):
            raise RequestError(f"data.path={path}: there is no such file, folder or pattern.")
        if place.suffix.lower() not in SUFFIXES:
            raise RequestError(
                f"data.path={path}: expected a file ending in {', '.join(SUFFIXES)}, a folder or a "
                "pattern of such files."
            )
    else:
        matches = {Path(f) for f in glob.glob(path, recursive=True)}
        found = [f for f in matches if f.suffix.lower() in SUFFIXES and not f.is_dir()]
        if not found:
            raise RequestError(
                f"data.path={path}: of {len(matches)} matches none is a {', '.join(SUFFIXES)} file."
            )
    for file in found:
        if file.exists() and not file.is_file():
            raise RequestError(f"data.path={path}: {file} is no regular file: it has no end.")
    return sorted(found, key=lambda f: f.as_posix())


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        yield from (Path(root, f) for f in files if not f.startswith("."))


def digest(files: Sequence[Path]) -> str:
    """sha256 of a file, of several the sha256 of theirs; names and places do not matter."""
    found = []
    for file in files:
        try:
            with open(file, "rb") as stream:
                inner = hashlib.file_digest(stream, "sha256")
        except OSError as error:
            raise _unreadable(file, error) from error
        found.append(inner.hexdigest())
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def documents(files: Sequence[Path], field: str) -> Iterator[str]:
    """Every document, blank ones too: a whole .txt or .md file, or `field` of a .jsonl line.

    Line ends of text files become "\\n" and a byte order mark goes; JSON strings stay as they are.
    """
    for file in files:
        try:
            if file.suffix.lower() in TEXT:
                raw = file.read_bytes()
                text = _decode(
                    raw.removeprefix(BOM), file, 1, len(raw) - len(raw.removeprefix(BOM))
                )
                yield text.replace("\r\n", "\n").replace("\r", "\n")
            else:
                for number, start, line in _lines(file):
                    yield _entry(line, field, file, number, start)
        except OSError as error:
            raise _unreadable(file, error) from error


def objects(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of every line of .jsonl files that is not blank."""
    for file in files:
        if file.suffix.lower() != ".jsonl":
            raise RequestError(f"{file}: expected a .jsonl file, one JSON object a line.")
        try:
            for number, start, line in _lines(file):
                where = f"{file}, line {number}"
                entry = _object(line, where, start, "an object")
                _texts(line, entry, where)
                yield where, entry
        except OSError as error:
            raise _unreadable(file, error) from error


def _texts(line: str, entry: object, where: str) -> None:
    """RequestError where some string in the entry holds half a surrogate pair."""
    if "\\u" in line:
        try:
            json.dumps(entry, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise RequestError(
                f"{where}: it holds half of a surrogate pair; expected text."
            ) from error


def _lines(file: Path) -> Iterator[tuple[int, int, str]]:
    """(line number, its first byte, text) of lines that are not blank."""
    start = 0
    with open(file, "rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.removeprefix(BOM) if number == 1 else raw
            start += len(raw) - len(line)
            body = line.strip(b" \t\r\n")
            if body:
                first = start + len(line) - len(line.lstrip(b" \t\r\n"))
                yield number, first, _decode(body, file, number, first)
            start += len(line)


def _object(line: str, where: str, start: int, expected: str) -> dict[str, Any]:
    """The JSON object in a line; RequestError with file, line, byte otherwise."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        byte = start + len(line[: error.pos].encode())
        raise RequestError(
            f"{where}, byte {byte}: {error.msg}; expected one JSON object a line."
        ) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"{where}, byte {start}: {str(error).splitlines()[0]}; expected one JSON object a line."
        ) from error
    if not isinstance(entry, dict):
        raise RequestError(
            f"{where}, byte {start}: this is a JSON {_kind(entry)}; expected {expected}."
        )
    return entry


def _entry(line: str, field: str, file: Path, number: int, start: int) -> str:
    """The text under `field` of one JSON object; RequestError with file, line, byte otherwise."""
    where = f"{file}, line {number}"
    entry = _object(line, where, start, f"an object with {field!r}")
    where = f"{where}, byte"
    if field not in entry:
        raise RequestError(
            f"{where} {start}: no field {field!r} (data.field=NAME chooses); "
            f"there are: {', '.join(entry) or 'none'}."
        )
    text = entry[field]
    if not isinstance(text, str):
        raise RequestError(
            f"{where} {start}: field {field!r} is a JSON {_kind(text)}; expected a string."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise RequestError(
            f"{where} {start}: character {error.start} of {field!r} is {code}, half of a surrogate "
            "pair; expected text."
        ) from error
    return text


def _decode(raw: bytes, file: Path, line: int, start: int) -> str:
    """UTF-8 text of bytes that begin at `line` and byte `start` of the file."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        hint = " (it looks like UTF-16)" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise RequestError(
            f"{file}, line {line}, byte {start + error.start}: 0x{raw[error.start]:02X} is no UTF-8"
            f"{hint}; save the file as UTF-8."
        ) from error


def _unreadable(file: Path, error: OSError) -> RequestError:
    return RequestError(
        f"cannot read {file}: {error.strerror or error}; check the path and its rights."
    )


def _kind(value: object) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
