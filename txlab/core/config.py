"""What every component is configured with: its own `Component` dataclass and the model's `Dims`."""

import dataclasses
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from txlab.core.errors import RequestError


@dataclass
class Component:
    """Base of every option's config: plain choices, checked in `__post_init__`, never sizes."""

    name: str = ""
    """Registered name of the option; set by registration, the discriminator in saved configs."""

    within: ClassVar[str] = ""
    """What a field's name follows in a key (`model.ffn.`); set by registration."""

    def require(self, condition: bool, field: str, expected: str) -> None:
        """Refuse a field's value with its key, value and what is expected instead."""
        if not condition:
            key, value = self.within + field, getattr(self, field)
            raise RequestError(f"{key}={value} of option {self.name!r}: expected {expected}.")


def check_numbers(config: Any, before: str = "", after: str = "") -> None:
    """Refuse what passes every `> 0` and ends in NaN or an overflow: inf, nan, over 63 bits."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"{before}{field.name}={value}{after}: expected a finite number.")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise RequestError(
                f"{before}{field.name}={value}{after}: expected a number below 2^63."
            )


def settle_choices(config: Any) -> None:
    """Turn names into members where a field's default is one of an enumeration.

    Hydra does so for the command line; in Python `Config(scaling="yarn")` would stay a text that is
    equal to the member and not the same. RequestError for a name that is none.
    """
    for field in dataclasses.fields(config):
        kind, value = type(field.default), getattr(config, field.name)
        if issubclass(kind, Enum) and isinstance(value, str) and not isinstance(value, kind):
            known = list(kind.__members__)
            if value not in known:
                key = config.within + field.name
                raise RequestError(
                    f"{key}={value} of option {config.name!r}: expected one of {', '.join(known)}."
                )
            setattr(config, field.name, kind[value])


def check_truth(key: str, value: Any) -> None:
    """Refuse what OmegaConf reads as true or false though it is neither, such as 2 and yes."""
    said = str(value).lower()
    if said not in ("true", "false", "null", "none") and not said.startswith("${"):
        raise RequestError(f"{key}={value}: expected true or false.")


@dataclass(frozen=True)
class Dims:
    """Sizes of the body, stated once on the model and handed to each component.

    `layer` is the index of the layer being built, or None outside of the stack.
    """

    dim: int
    n_heads: int
    head_dim: int
    n_layers: int
    context: int
    vocab_size: int
    dropout: float = 0.0
    layer: int | None = None

    def at(self, layer: int) -> "Dims":
        """The same sizes, seen from layer number `layer`."""
        return dataclasses.replace(self, layer=layer)
