"""Slots: the fixed places of the assembly, each with one interface and any number of options."""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from txlab.core.config import Component, check_numbers, check_truth, settle_choices
from txlab.core.errors import RequestError
from txlab.core.nearest import did_you_mean
from txlab.core.plugins import FAILURES

T = TypeVar("T")
C = TypeVar("C", bound=type)
SLOTS: dict[str, "Slot[Any]"] = {}
"""Every slot by its path, in order of declaration."""


@dataclass(frozen=True)
class Option:
    """One registered option: the class, its config type and where it was registered."""

    name: str
    cls: type
    config: type[Component]
    module: str
    origin: str


class Slot(Generic[T]):
    """A place in the assembly: `attention = Slot("model.attn", Mixer, doc="...")`.

    Calling the slot with a name registers a class: `@attention("gqa")`. The class must derive from
    the slot's interface; its nested `Config` dataclass must derive from the interface's `Config`.
    """

    def __init__(self, path: str, interface: type[T], *, doc: str) -> None:
        if path in SLOTS:
            raise ValueError(f"slot {path!r} is declared twice")
        self.path = path
        self.interface = interface
        self.doc = doc
        self._options: dict[str, Option] = {}
        self._by_config: dict[type, Option] = {}
        SLOTS[path] = self

    @property
    def options(self) -> Mapping[str, Option]:
        """Registered options by name."""
        return MappingProxyType(self._options)

    def __call__(self, name: str) -> Callable[[C], C]:
        """Register the decorated class as option `name`; raises TypeError where it does not fit."""
        caller = sys._getframe(1)
        origin = f"{caller.f_code.co_filename}:{caller.f_lineno}"

        def register(cls: C) -> C:
            self._check(name, cls, origin)
            config = _own_config(cls, name, f"{self.path}.")
            node = _Lazy(config, self.path, name, f"{origin}: {cls.__name__}", cls.__module__)
            if not cls.__module__.startswith("txlab."):
                _ = node.made  # a stranger's mistake is told where it was made; ours, by tests
            cls.Config = config
            option = Option(name, cls, config, cls.__module__, origin)
            self._options[name] = self._by_config[config] = option
            ConfigStore.instance().repo.setdefault(self.path, {})[f"{name}.yaml"] = node
            return cls

        return register

    def remove(self, name: str) -> None:
        """Forget option `name` (tests of options that must not stay)."""
        del self._by_config[self._options.pop(name).config]
        ConfigStore.instance().repo[self.path].pop(f"{name}.yaml", None)

    def option(self, name: str) -> Option:
        """The option called `name`; RequestError with the nearest names where there is none."""
        if name not in self._options:
            raise RequestError(unknown(f"option {name!r} of {self.path}", name, self._options))
        return self._options[name]

    def option_of(self, config: Component) -> Option:
        """The option that `config` belongs to, by the config's type."""
        option = self._by_config.get(type(config))
        if option is None:
            kind = f"{type(config).__module__}.{type(config).__qualname__}"
            raise RequestError(f"{self.path}: no option is registered for config type {kind}.")
        if config.name != option.name:
            raise RequestError(
                f"{self.path}.name={config.name!r} cannot be set: choose the option itself, "
                f"{self.path}={config.name}."
            )
        return option

    def config(self, entry: Any, *, inherit: Component | None = None) -> Component:
        """A typed config from a name or from `{name: ..., field: ...}`.

        Fields that the entry leaves out are taken from `inherit` where both types have them.
        """
        given = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        option = self.option(str(given.get("name")))
        fields = {f.name: f.type for f in dataclasses.fields(option.config)}
        for key, value in given.items():
            if fields.get(key) is bool:
                check_truth(key, value)
            if key not in fields:
                known = dict.fromkeys(sorted(fields))
                raise RequestError(
                    unknown(f"field {key!r} of {self.path}={option.name}", key, known)
                )
        if inherit is not None:
            shared = {f.name: getattr(inherit, f.name) for f in dataclasses.fields(inherit)}
            given = {k: v for k, v in shared.items() if k in fields and k != "name"} | given
        try:
            typed = OmegaConf.merge(OmegaConf.structured(option.config), given)
            config = OmegaConf.to_object(typed)
        except OmegaConfBaseException as error:
            text = str(error).splitlines()[0]
            raise RequestError(f"{self.path}={option.name}: {text}") from error
        assert isinstance(config, Component)
        return config

    def build(self, config: Component, *args: Any, **parts: Any) -> T:
        """Construct the option that `config` belongs to: `cls(config, *args, **parts)`."""
        return self.option_of(config).cls(config, *args, **parts)

    def _check(self, name: str, cls: type[Any], origin: str) -> None:
        there = self._options.get(name)
        if there is not None:
            raise TypeError(
                f"{self.path}={name} is registered twice: {there.origin} (module {there.module}) "
                f"and {origin} (module {cls.__module__})"
            )
        if not issubclass(cls, self.interface):
            raise TypeError(f"{origin}: {cls.__name__} is no {self.interface.__name__}")
        base = getattr(self.interface, "Config", Component)
        config = getattr(cls, "Config", None)
        if not (isinstance(config, type) and issubclass(config, base)):
            raise TypeError(f"{origin}: {cls.__name__}.Config must derive from {base.__qualname__}")


def _own_config(cls: type[Any], name: str, within: str) -> type[Component]:
    """A config type of this option's own, with `name` as a fresh field that has this default."""
    base = cls.Config

    def check(self: Any) -> None:
        settle_choices(self)
        if hasattr(base, "__post_init__"):
            base.__post_init__(self)
        check_numbers(self, before=within, after=f" of option {self.name!r}")

    config = dataclasses.make_dataclass(
        "Config",
        [("name", str, dataclasses.field(default=name))],
        bases=(base,),
        namespace={
            "__doc__": base.__doc__ if "Config" in cls.__dict__ else None,
            "__post_init__": check,
            "within": within,
        },
    )
    config.__module__ = cls.__module__
    config.__qualname__ = f"{cls.__qualname__}.Config"
    return config


class _Lazy(ConfigNode):
    """A node of Hydra's store that is made when Hydra takes it out: most options are never asked
    for, and making the nodes of all would be most of the time that --help takes."""

    def __init__(self, config: type, path: str, name: str, who: str, provider: str) -> None:
        super().__init__(f"{name}.yaml", OmegaConf.create(), path, path, provider)
        self.config = config
        self.who = who

    @cached_property
    def made(self) -> DictConfig:
        """The typed node; TypeError where the config has a type that OmegaConf cannot hold."""
        try:
            return blank(self.config, self.package or "")
        except (OmegaConfBaseException, ValueError) as error:
            text = str(error).splitlines()[0]
            raise TypeError(f"{self.who}.Config cannot be typed: {text}") from error

    def __copy__(self) -> ConfigNode:
        return ConfigNode(self.name, self.made, self.group, self.package, self.provider)


def blank(config: type, path: str) -> DictConfig:
    """The typed node of a config at `path`, with every slot below it left to be chosen.

    A slot's place holds the bare interface there: merging an option over another option's node is
    refused, and a default would leave its fields behind.
    """
    node = OmegaConf.structured(config)
    for field in dataclasses.fields(config):
        below = SLOTS.get(f"{path}.{field.name}".lstrip("."))
        if below is not None:
            node[field.name] = blank(getattr(below.interface, "Config", Component), below.path)
    return node


def slot_at(path: str) -> Slot[Any]:
    """The slot at `path`; RequestError with the nearest names where there is none."""
    if path not in SLOTS:
        raise RequestError(unknown(f"slot {path!r}", path, SLOTS))
    return SLOTS[path]


def unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    """One line for a name nobody knows: the nearest ones, and all there are."""
    line = f"unknown {what}.{did_you_mean(name, known)} There are: {', '.join(known) or 'none'}."
    return " ".join([line, *(f"Note: {failure}." for failure in FAILURES)])
