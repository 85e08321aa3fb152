"""One document as it stands in a file."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError

BOM = b"\xef\xbb\xbf"


class Record:
    """What one document is read from; what is wrong with it shows only then."""

    again: bool = False
    """Whether it can be read more than once."""
    where: str
    """File and line, or row."""

    def text(self, field: str) -> Iterator[str]:
        """The document's text in parts, in order; a whole one where it is not large.

        RequestError where it is no text, with the place and what is expected.
        """
        raise NotImplementedError

    def entry(self) -> dict[str, Any]:
        """All fields; RequestError where it has none."""
        raise NotImplementedError


def chosen(entry: Mapping[str, Any], field: str, where: str) -> str:
    """The text under `field`; RequestError where there is none."""
    if field not in entry:
        raise RequestError(
            f"{where}: no field {field!r} (data.field=NAME chooses); "
            f"there are: {', '.join(map(str, entry)) or 'none'}."
        )
    return checked(entry[field], field, where)


def checked(value: Any, field: str, where: str) -> str:
    """The value itself, which has to be text."""
    if not isinstance(value, str):
        raise RequestError(f"{where}: field {field!r} holds {kind(value)}; expected a string.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        code = f"\\u{ord(value[error.start]):04x}"
        raise RequestError(
            f"{where}: character {error.start} of {field!r} is {code}, half of a surrogate pair; "
            "expected text."
        ) from error
    return value


def whole_text(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields themselves; RequestError where a string in them is no text."""
    try:
        json.dumps(entry, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(f"{where}: it holds half of a surrogate pair; expected text.") from error
    return entry


def decoded(raw: bytes, file: Path, line: int, start: int) -> str:
    """UTF-8 text of bytes that begin at `line` and byte `start` of the file."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise no_utf8(raw, error.start, file, line, start) from error


def no_utf8(raw: bytes, at: int, file: Path, line: int, start: int) -> RequestError:
    """The refusal of byte `at` of `raw`, which begins at `line` and byte `start` of the file."""
    line += raw.count(b"\n", 0, at)
    hint = " (it looks like UTF-16)" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return RequestError(
        f"{file}, line {line}, byte {start + at}: 0x{raw[at]:02X} is no UTF-8{hint}; save the file "
        "as UTF-8."
    )


def kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number" if isinstance(value, int | float) else "no text")
