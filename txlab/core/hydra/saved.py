"""A typed config as a YAML file and back: each component's `name` says which type it has.

Nothing in such a file is executed: no tag, no `_target_`, no plugin it names is imported.
"""

import dataclasses
import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import DictConfig, OmegaConf

from txlab.core import plugins
from txlab.core.errors import RequestError
from txlab.core.hydra import keys, registry
from txlab.core.hydra.compose import typed
from txlab.core.hydra.errors import translated
from txlab.core.slot import SLOTS, Option, blank

if TYPE_CHECKING:
    from txlab.schema import Config

_PLUGINS = "_plugins_"
_EXECUTABLE = ("trainer", "logger", "callbacks")
_LATER = {"adapter": "none"}
"""Slots that did not exist when older configs were saved, with the option that changes nothing."""


def to_yaml(config: "Config") -> str:
    """The config as YAML; `_plugins_` says who brought each option that is not built in."""
    registry.ready()
    tree = _plain(config)
    outside = {
        path: plugins.provider(option.module)
        for path, option in _chosen(config).items()
        if not option.module.startswith("txlab.")
    }
    if outside:
        tree[_PLUGINS] = outside
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def from_yaml(text: str, source: str = "the saved config", *, ours: bool = False) -> "Config":
    """The typed config written by `to_yaml`; RequestError names `source` where it is not one.

    `trainer`, `logger` and `callbacks` name classes to import, so they are left as by default; with
    `ours`, for a text that this very run has written, they are read as well.
    """
    registry.ready()
    try:
        tree = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise RequestError(f"{source} is no YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(tree, dict):
        raise RequestError(f"{source} holds no config: expected keys such as model and data.")
    origins = tree.pop(_PLUGINS, None) or {}
    executable = {key: tree.pop(key, None) for key in _EXECUTABLE}
    from txlab.schema import Config

    node = blank(Config, "")
    for path, name in _LATER.items():
        tree.setdefault(path, {"name": name})
    for path in sorted(SLOTS, key=lambda slot: slot.count(".")):
        given = _at(tree, path)
        if not isinstance(given, Mapping):
            raise RequestError(f"{source}: {path} is missing.")
        option = _option(path, str(given.get("name")), source, origins)
        parent, _, leaf = path.rpartition(".")
        owner = OmegaConf.select(node, parent) if parent else node
        owner[leaf] = blank(option.config, path)
    try:
        keys.check_truths(tree)
        with translated():
            merged = OmegaConf.merge(node, _escaped(tree))
            assert isinstance(merged, DictConfig)
        config = typed(merged)
        return dataclasses.replace(config, **executable) if ours else config
    except RequestError as error:
        raise RequestError(f"{source}: {error}") from error


def _option(path: str, name: str, source: str, origins: Mapping[str, str]) -> Option:
    if name not in SLOTS[path].options and path in origins:
        raise RequestError(
            f"{source} needs {path}={name} of {origins[path]}, which is not installed here: "
            "install it, or name its module with plugins=[module]."
        )
    try:
        return SLOTS[path].option(name)
    except RequestError as error:
        raise RequestError(f"{source}: {error}") from error


def _chosen(config: Any, path: str = "") -> dict[str, Option]:
    """Every slot's option in a typed config, by the slot's path."""
    found: dict[str, Option] = {}
    for field in dataclasses.fields(config):
        here, value = f"{path}.{field.name}".lstrip("."), getattr(config, field.name)
        if here in SLOTS:
            found[here] = SLOTS[here].option_of(value)
        if dataclasses.is_dataclass(value):
            found |= _chosen(value, here)
    return found


def _plain(value: Any) -> Any:
    """Dataclasses as mappings, enums by name, tuples as lists."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {_plain(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _escaped(value: Any) -> Any:
    """Text with `${` in it as text: a saved config is resolved and refers to nothing."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", value)
    if isinstance(value, Mapping):
        return {key: _escaped(entry) for key, entry in value.items()}
    return [_escaped(entry) for entry in value] if isinstance(value, list) else value


def _at(tree: Any, path: str) -> Any:
    for word in path.split("."):
        tree = tree.get(word) if isinstance(tree, Mapping) else None
    return tree


class _Dumper(yaml.SafeDumper):
    """Quotes every text that some reader of YAML could take for a number or a truth value."""


class _Loader(yaml.SafeLoader):
    """Reads 1e-5 as a number, as people mean it, and refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(names) != len({str(name) for name in names}):
            raise yaml.YAMLError(f"a key stands twice{node.start_mark}")
        return super().construct_mapping(node, deep)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z_][\w./ -]*", value, re.ASCII) is not None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


_Dumper.add_representer(str, _text)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:\d[\d_]*)(?:\.[\d_]*)?(?:[eE][-+]?\d+)$|[-+]?\.\d[\d_]*(?:[eE][-+]?\d+)?$"
    ),
    list("-+0123456789."),
)
