"""Overrides -> composed tree -> typed config."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, ListConfig, OmegaConf

from txlab.core import plugins
from txlab.core.errors import RequestError
from txlab.core.files import data_folder
from txlab.core.hydra import keys, overrides, registry
from txlab.core.hydra.errors import translated
from txlab.core.values import absolute, choices

if TYPE_CHECKING:
    from txlab.schema import Config


def prepare(words: Sequence[str], *, multirun: bool = False) -> list[str]:
    """Load plugins, make all options known, and normalise the command line's words."""
    registry.ready()
    plain = [overrides.parse(word) for word in overrides.split_flags(words)[1]]
    for word in plain:
        if word.key == "plugins" and word.value:
            plugins.load(_modules(word.value))
    for word in plain:
        if word.key == "recipe" and word.value in registry.RECIPES:
            recipe = registry.RECIPES[word.value]
            plugins.load(recipe.plugins)
            recipe.check()
            given = {other.key for other in plain if other.value not in (None, "null")}
            for key in recipe.needs:
                if key not in given:
                    raise RequestError(f"+recipe={recipe.name} needs {key}=...: {keys.doc(key)}")
    return overrides.normalise(words, multirun=multirun)


def compose(words: Sequence[str] = ()) -> "Config":
    """The typed config of a command line's overrides; RequestError where one is wrong."""
    return typed(composed(prepare(words)))


def composed(normal: Sequence[str]) -> DictConfig:
    """The tree that Hydra makes of words that `prepare` has normalised."""
    state = GlobalHydra.instance().hydra
    with translated():
        try:
            with hydra.initialize_config_dir(
                str(data_folder("conf")), version_base="1.3", job_name="txlab"
            ):
                return hydra.compose("config", overrides=list(normal))
        finally:
            GlobalHydra.instance().hydra = state


def typed(tree: DictConfig) -> "Config":
    """The composed tree as plain dataclasses, checked; input paths are made absolute."""
    _check_tuples(tree)
    with translated():
        config: Any = OmegaConf.to_object(tree)
    for key in config.trainer or {}:
        if key in keys.OWNED:
            raise RequestError(keys.owned(key))
    _settle(config, "")
    return config


def _check_tuples(node: DictConfig, path: str = "") -> None:
    """Refuse a tuple of the wrong length, which OmegaConf takes for any list."""
    kind: Any = OmegaConf.get_type(node)
    for field in dataclasses.fields(kind):
        if OmegaConf.is_missing(node, field.name) or OmegaConf.is_interpolation(node, field.name):
            continue
        key, value = f"{path}.{field.name}".lstrip("."), node[field.name]
        wanted = get_args(field.type)
        if isinstance(value, ListConfig) and get_origin(field.type) is tuple:
            if ... not in wanted and len(value) != len(wanted):
                raise RequestError(f"{key}={list(value)}: expected {len(wanted)} values.")
        elif isinstance(value, DictConfig) and dataclasses.is_dataclass(OmegaConf.get_type(value)):
            _check_tuples(value, key)


def _settle(node: Any, path: str) -> None:
    """What OmegaConf cannot do: tuples are tuples, and input paths are absolute."""
    for field in dataclasses.fields(node):
        key, value = f"{path}.{field.name}".lstrip("."), getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            _settle(value, key)
        elif isinstance(value, list) and get_origin(field.type) is tuple:
            setattr(node, field.name, tuple(value))
        elif (
            isinstance(value, str)
            and value
            and keys.is_path(key)
            and (key, value) != ("resume", "auto")
        ):
            setattr(node, field.name, absolute(value))


def _modules(value: str) -> list[str]:
    words = choices(value.strip("[]"))
    return [word.strip().strip("'\"") for word in words if word.strip()]
