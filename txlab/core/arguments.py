"""Arguments of verbs: `key=value` words into a typed dataclass. Text is taken letter by letter."""

import dataclasses
import difflib
from collections.abc import Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from txlab.core.docs import default_text, field_docs, type_name
from txlab.core.errors import RequestError
from txlab.core.nearest import did_you_mean
from txlab.core.values import whole_number

T = TypeVar("T")


def parse(kind: type[T], words: Sequence[str], *, rest: bool = False) -> tuple[T, list[str]]:
    """The dataclass `kind` from `key=value` words, and the words that are not its own.

    A list field takes one value a word: `stop=a stop=b`. With `rest`, words with other keys are
    handed back (they are overrides of the config); without, they are refused.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    others: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in fields:
            _give(given, fields[key], value)
        elif rest and (not equals or not _misspelt(key, fields)):
            others.append(word)
        else:
            raise RequestError(_refusal(word, key, fields))
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in given:
            raise RequestError(
                f"{name}=... is needed: {field_docs(kind).get(name, type_name(field.type))}"
            )
    return kind(**given), others


def usage(kind: type) -> list[tuple[str, str, str]]:
    """(key, default, doc) of every argument, for printing."""
    docs = field_docs(kind)
    return [(f.name, default_text(f), docs.get(f.name, "")) for f in dataclasses.fields(kind)]


def _give(given: dict[str, Any], field: "dataclasses.Field[Any]", value: str) -> None:
    kinds = _members(field.type)
    if get_origin(kinds[0]) is list:
        item = get_args(kinds[0])[0]
        given.setdefault(field.name, []).append(_read(field.name, value, [item]))
    else:
        given[field.name] = _read(field.name, value, kinds)


def _read(key: str, value: str, kinds: Sequence[Any]) -> Any:
    if value == "null" and NoneType in kinds and str not in kinds:
        return None
    if str in kinds:
        return value
    if bool in kinds:
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise RequestError(f"{key}={value}: expected true or false.")
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            if value in kind.__members__:
                return kind[value]
            raise RequestError(f"{key}={value}: expected one of {', '.join(kind.__members__)}.")
    try:
        return int(whole_number(value)) if int in kinds else float(value)
    except ValueError:
        wanted = "a whole number" if int in kinds else "a number"
        raise RequestError(f"{key}={value}: expected {wanted}.") from None


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _misspelt(key: str, fields: dict[str, Any]) -> bool:
    """Whether an unknown key is nearer to an argument of the verb than to any key of the config."""
    from txlab.core.hydra.keys import every_key

    roots = {name.partition(".")[0] for name in every_key()} | {"hydra", "recipe", "debug"}
    root = key.lstrip("+~").replace("/", ".").partition(".")[0]
    return root not in roots and bool(difflib.get_close_matches(root, fields, cutoff=0.6))


def _refusal(word: str, key: str, fields: dict[str, Any]) -> str:
    what = f"unknown argument {key}" if "=" in word else f"cannot read {word!r}: expected key=value"
    return f"{what}.{did_you_mean(key, fields)} There are: {', '.join(fields) or 'none'}."
