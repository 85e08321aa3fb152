"""Layer patterns: which option each layer takes, cycled over the depth."""

from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from txlab.core.config import Component
from txlab.core.errors import RequestError
from txlab.core.slot import Slot

C = TypeVar("C", bound=Component)


@dataclass
class Pattern:
    """Per slot, the options of the layers in order, cycled: names, or `{name: ..., field: ...}`.

    An entry takes over the fields it shares with the slot's own choice and does not set itself.
    """

    attn: list[Any] = field(default_factory=list)
    """Token mixers of the layers; empty: `model.attn` everywhere."""
    ffn: list[Any] = field(default_factory=list)
    """Feed-forward layers; empty: `model.ffn` everywhere."""
    pos: list[Any] = field(default_factory=list)
    """Positional schemes inside attention; empty: `model.pos` everywhere."""


def layer_configs(slot: Slot[Any], entries: list[Any], base: C, n_layers: int) -> list[C]:
    """The config of each layer; equal entries give the same object.

    RequestError says which entry of which key is wrong, whoever wrote it: command line or recipe.
    """
    if not entries:
        return [base] * n_layers
    made: list[C] = []
    for number, entry in enumerate(entries, 1):
        try:
            made.append(cast(C, slot.config(entry, inherit=base)))
        except RequestError as error:
            key = f"model.pattern.{slot.path.rpartition('.')[2]}"
            raise RequestError(f"{key}, entry {number} ({entry}): {error}") from error
    return [made[i % len(made)] for i in range(n_layers)]
