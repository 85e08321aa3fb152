"""A saved config with words of the command line on top, each change named."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from txlab.core.errors import RequestError
from txlab.core.hydra import overrides
from txlab.core.hydra.errors import translated
from txlab.core.slot import SLOTS

C = TypeVar("C")


def amend(config: C, words: Sequence[str], roots: Sequence[str], source: str) -> C:
    """A copy of the root config with normalised `words` applied; they may touch `roots` only.

    A changed option takes over the fields that it shares with the old one. RequestError names a
    word that would change nothing, or a model's family, which cannot become another one.
    """
    changed = copy.deepcopy(config)
    values = []
    for text in overrides.split_flags(words)[1]:
        word = overrides.parse(text)
        if word.key.split(".")[0] not in roots:
            raise RequestError(
                f"{word} changes nothing here: {source} is what it is; keys of {', '.join(roots)} "
                "can be given."
            )
        if word.key not in SLOTS:
            values.append(word)
            continue
        parent, _, leaf = word.key.rpartition(".")
        owner: Any = changed
        for name in parent.split(".") if parent else ():
            owner = getattr(owner, name)
        value, now = (word.value or "").strip("'\""), getattr(owner, leaf)
        if word.key == "model" and value != now.name:
            raise RequestError(
                f"{word}: {source} is a {now.name}, and a family cannot become another one."
            )
        if value != now.name:
            setattr(owner, leaf, SLOTS[word.key].config(value, inherit=now))
    with translated():
        node, parser = OmegaConf.structured(changed), OverridesParser.create()
        for word in values:
            OmegaConf.update(node, word.key, parser.parse_override(str(word)).value())
        made: Any = OmegaConf.to_object(node)
    return made


def changes(before: Any, after: Any, path: str) -> list[str]:
    """A line `key: old -> new` for each value that differs between two configs at `path`."""
    old, new = _flat(before, path), _flat(after, path)
    return [
        f"{key}: {old.get(key, 'absent')} -> {value}"
        for key, value in new.items()
        if old.get(key, dataclasses.MISSING) != value
    ]


def _flat(node: Any, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        key, value = f"{path}.{field.name}", getattr(node, field.name)
        found |= _flat(value, key) if dataclasses.is_dataclass(value) else {key: value}
    return found
