"""The normaliser: words of the command line as people write them into words that Hydra reads.

What Hydra would drop, guess or refuse with advice that is wrong here is refused in our own words.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from txlab.core.config import check_truth
from txlab.core.errors import RequestError
from txlab.core.hydra import keys, registry, text
from txlab.core.slot import SLOTS
from txlab.core.values import choices, whole_number

LENGTHS = ("train.steps", "train.tokens", "train.epochs")
_FLAGS_WITH_VALUE = {
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--info", "-i", "--experimental-rerun"),
}
_FLAGS = _FLAGS_WITH_VALUE | {
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m"),
    *("--shell-completion", "-sc"),
}


@dataclass(frozen=True)
class Word:
    """`+key=value` taken apart; `value` is None where there is no `=`."""

    prefix: str
    key: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.prefix}{self.key}" + ("" if self.value is None else f"={self.value}")


def parse(word: str) -> Word:
    """A word taken apart; RequestError where it is no override."""
    match = re.fullmatch(r"(\+\+|\+|~)?([^=]*)(?:=(.*))?", word, re.DOTALL)
    assert match is not None
    prefix, key, value = match[1] or "", match[2].strip(), match[3]
    if not key or (value is None and prefix != "~"):
        raise RequestError(f"cannot read {word!r}: expected key=value, such as model.attn=gqa.")
    return Word(prefix, key, value)


def normalise(words: Sequence[str], *, multirun: bool = False) -> list[str]:
    """The words for Hydra, recipes first; RequestError names the first one that is wrong."""
    flags, overrides = split_flags(words)
    done = [_normal(parse(word), multirun) for word in overrides]
    given = {word.key for word in done if word.value not in (None, "null")}
    if given & set(LENGTHS):
        done += [Word("", key, "null") for key in LENGTHS if key not in {w.key for w in done}]
    done.sort(key=lambda word: {"recipe": 0, "debug": 1}.get(word.key.partition("/")[0], 2))
    return flags + [str(word) for word in done]


def split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra's own flags (with their values), and the overrides."""
    flags: list[str] = []
    overrides: list[str] = []
    takes_value = False
    for word in words:
        is_flag = word.startswith("-") or takes_value
        name = word.partition("=")[0]
        if word.startswith("-") and not takes_value and name not in _FLAGS:
            near = difflib.get_close_matches(name, _FLAGS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "--hydra-help lists them."
            raise RequestError(f"unknown flag {name}: {hint}")
        takes_value = word in _FLAGS_WITH_VALUE
        (flags if is_flag else overrides).append(word)
    return flags, overrides


def _normal(word: Word, multirun: bool) -> Word:
    root = re.split(r"[./@]", word.key, maxsplit=1)[0]
    dotted = word.key.replace("/", ".")
    if dotted in SLOTS:
        return _option(replace(word, key=dotted), multirun)
    if word.key in keys.GROUPS and word.prefix != "~":
        _names_entries(word)
    if root in ("recipe", "debug"):
        return replace(word, prefix=word.prefix or "+")
    if root in keys.FREE:
        return word
    if word.prefix == "~":
        raise RequestError(
            f"{word}: only keys of trainer, logger and callbacks can be removed; "
            f"to unset a value write {word.key}=null."
        )
    if word.prefix:
        raise _no_prefix(word)
    parent, _, leaf = word.key.rpartition(".")
    if leaf == "name" and parent in SLOTS:
        raise RequestError(
            f"{word} cannot be set: choose the option itself, {parent}={word.value}."
        )
    return replace(word, value=_value(word, multirun))


def _option(word: Word, multirun: bool) -> Word:
    value = word.value or ""
    if "none" in SLOTS[word.key].options:
        value = ",".join("none" if part == "null" else part for part in choices(value))
    if word.prefix == "~" or value in ("", "null"):
        raise RequestError(
            f"{word}: a slot cannot be empty; it takes {', '.join(SLOTS[word.key].options)}."
        )
    if "(" not in value and "*" not in value:
        names = choices(value)
        if len(names) > 1 and not multirun:
            raise RequestError(f"{word} names {len(names)} options: add -m to run them all.")
        for name in names:
            SLOTS[word.key].option(name.strip().strip("'\""))
    return replace(word, prefix="", value=value)


def _names_entries(word: Word) -> None:
    """RequestError where a group of YAML files is given what is no name, like null or a number.

    Names are looked up by Hydra, which knows the folders of `-cd` as well.
    """
    for value in choices((word.value or "").strip("[] ")):
        if re.fullmatch(r"\s*(null|true|false|[+-]?[\d.]+(e[+-]?\d+)?|)\s*", value, re.IGNORECASE):
            there = ", ".join(registry.entries(word.key))
            way = f"one of {there}" if there else f"a class, +{word.key}.mine._target_=CLASS"
            raise RequestError(f"{word}: name {way}, or leave the word out.")


def _no_prefix(word: Word) -> RequestError:
    try:
        keys.types_of(word.key)
    except RequestError as error:
        return RequestError(f"{word}: {error} A new key cannot be added: nothing would read it.")
    plain = replace(word, prefix="")
    return RequestError(f"{word}: {word.key} exists, so drop the {word.prefix}: {plain}.")


def _value(word: Word, multirun: bool) -> str:
    """The value as Hydra must see it, by the type of the field it is for."""
    kinds, value = keys.types_of(word.key), word.value or ""
    if keys.is_words(word.key) and value != "null" and "(" not in value:
        # Several plugins are wanted together, never one by one.
        lists = choices(value) if multirun and word.key != "plugins" else [value]
        return ",".join(part if part.startswith("[") else f"[{part}]" for part in lists)
    if all(kind is bool for kind in kinds) and "(" not in value:
        for part in choices(value) if multirun else [value]:
            check_truth(word.key, part.strip().strip("'\""))
    if value == "null" or text.is_quoted(value):
        return value
    if keys.is_text(word.key):
        return text.quoted(value, literal=True)
    sweep = choices(value) if multirun else [value]
    if all(kind is int for kind in kinds):
        if multirun and "interval(" in value:
            return _whole_interval(word, value)
        return ",".join(whole_number(part.strip()) for part in sweep)
    if any(kind is not str for kind in kinds):
        return value
    if multirun and re.fullmatch(r"(choice|glob|sort|shuffle|extend_list)\(.*\)", value):
        return value
    return ",".join(part if text.is_quoted(part) else text.quoted(part) for part in sweep)


def _whole_interval(word: Word, value: str) -> str:
    """A range of whole numbers: Hydra's own are of real ones unless they are cast."""

    def ends(match: re.Match[str]) -> str:
        whole = [whole_number(part.strip()) for part in match[1].split(",")]
        if not all(re.fullmatch(r"((start|end)=)?[+-]?\d+", part) for part in whole):
            raise RequestError(f"{word}: {word.key} takes whole numbers, so the ends must be such.")
        return f"interval({','.join(whole)})"

    inner = re.sub(r"interval\(([^()]*)\)", ends, value)
    return inner if inner.startswith("int(") else f"int({inner})"
