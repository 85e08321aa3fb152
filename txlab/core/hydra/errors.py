"""Hydra's and OmegaConf's errors in one line of ours: what, where and the way out."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ReadonlyConfigError,
    ValidationError,
)

from txlab.core.errors import RequestError
from txlab.core.hydra import keys, presets
from txlab.core.hydra.registry import RECIPES, entries
from txlab.core.slot import unknown


@contextmanager
def translated() -> Iterator[None]:
    """Errors of composition raised inside leave as RequestError."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise translate(error) from error


def translate(error: BaseException) -> RequestError:
    """The RequestError that says what `error` says."""
    chain = [error]
    while (
        cause := chain[-1].__cause__ or chain[-1].__context__
    ) is not None and cause not in chain:
        chain.append(cause)
    for kind in (RequestError, *_MAKERS):
        for link in chain:
            if isinstance(link, kind):
                return link if isinstance(link, RequestError) else RequestError(_MAKERS[kind](link))
    return RequestError(_line(str(error)))


def _override(error: OverrideParseException) -> str:
    why = _line(error.message).partition(" See https")[0]
    return (
        f"cannot read {error.override!r}: {why} Quote the value: {_key(error.override)}=\"'...'\"."
    )


def _missing(error: MissingConfigException) -> str:
    wanted = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = wanted.rpartition("/")
    if group == "recipe" or wanted.startswith("recipe/"):
        return unknown(f"recipe {wanted.removeprefix('recipe/')!r}", wanted[7:], RECIPES)
    options = error.options or re.findall(r"^\t(\S+)$", str(error), re.MULTILINE)
    if options or group in keys.GROUPS:
        return unknown(f"{group} {name!r}", name, dict.fromkeys(options or entries(group)))
    return _line(str(error))


def _validation(error: ValidationError) -> str:
    key = error.full_key or ""
    value = re.search(r"[Vv]alue '(.*?)'", str(error), re.DOTALL)
    try:
        wanted = keys.expected(key)
    except RequestError:
        return f"{key}: {_line(error.msg or str(error))}"
    said = f"={value[1]}" if value else ""
    if "not Optional" in str(error):
        said = "=null"
    return f"{key}{said}: expected {wanted}."


def _unknown_key(error: ConfigKeyError | ConfigAttributeError) -> str:
    key = error.full_key or str(error.key)
    if key.startswith("trainer.") and key[8:] in keys.OWNED:
        return keys.owned(key[8:])
    if key.partition(".")[0] in keys.FREE:
        return presets.missing(key)
    owners = keys.owners_of(key)
    if owners:
        parent = key.rpartition(".")[0]
        return f"{key} is no field of the chosen {parent}; it belongs to {', '.join(owners)}."
    try:
        keys.types_of(key)
    except RequestError as found:
        return str(found)
    return f"unknown key {key}: {_line(str(error))}"


def _missing_value(error: MissingMandatoryValue) -> str:
    return f"{error.full_key} has no value: give {error.full_key}=..."


def _interpolation(error: InterpolationResolutionError) -> str:
    return f"{error.full_key or 'a value'} refers to what does not exist: {_line(str(error))}"


def _other(error: BaseException) -> str:
    said = str(error)
    ambiguous = re.search(r"Ambiguous value for argument '(.*?)'\n", said, re.DOTALL)
    if ambiguous:
        key = _key(ambiguous[1])
        return (
            f"{ambiguous[1]} lists several values: add -m to run them all, "
            f"or write {key}=[...] if a list is meant."
        )
    if "Multiple values for" in said:
        return f"{_line(said)} Choose once."
    return _line(re.sub(r"\nTo append to your config use.*", "", said))


_MAKERS = {
    OverrideParseException: _override,
    MissingConfigException: _missing,
    ReadonlyConfigError: _other,
    ValidationError: _validation,
    MissingMandatoryValue: _missing_value,
    InterpolationResolutionError: _interpolation,
    ConfigKeyError: _unknown_key,
    ConfigAttributeError: _unknown_key,
    HydraException: _other,
}


def _key(override: str) -> str:
    return override.partition("=")[0]


def _line(said: str) -> str:
    kept = [
        line
        for line in said.splitlines()
        if not re.match(r"\s*(full_key|object_type|reference_type)", line)
    ]
    line = " ".join(" ".join(kept).split())
    return line if line.endswith((".", "!", "?")) else f"{line}."
