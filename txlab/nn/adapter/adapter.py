"""The slot of adapters: a few weights that train while the model they sit in is frozen."""

import contextlib
from dataclasses import dataclass

from torch import Tensor, nn

from txlab.core.config import Component
from txlab.core.slot import Slot


class Adapter:
    """Changes a model in place, and can be taken out of it again.

    It holds no weights and no model: all methods work on the model they are given, so a deep copy
    of an adapted model is an adapted model. `model.adapter` is the adapter of a model that has one.
    """

    @dataclass
    class Config(Component):
        """Fields shared by all adapters."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def inject(self, model: nn.Module) -> None:
        """Put the adapter into `model`, which computes what it did before; freeze all else.

        Draws from torch's generator. RequestError where nothing in the model is meant.
        """
        raise NotImplementedError

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """The adapter's own tensors by name; what an adapter-only checkpoint holds."""
        raise NotImplementedError

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        """All other tensors under the names they have in the model without adapter."""
        raise NotImplementedError

    def off(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Inside of this the model computes exactly what it does without adapter."""
        raise NotImplementedError

    def merge(self, model: nn.Module) -> None:
        """Work the adapter into the weights of the base, which are kept; no effect twice."""
        raise NotImplementedError

    def unmerge(self, model: nn.Module) -> None:
        """Undo `merge`: the base has every bit that it had."""
        raise NotImplementedError

    def bake(self, model: nn.Module) -> None:
        """Merge for good: what is left is a plain model without adapter, all of it trainable."""
        raise NotImplementedError

    def describe(self, model: nn.Module) -> str:
        """One line on what is adapted and how much of the model trains."""
        raise NotImplementedError


def adapter_of(model: nn.Module) -> Adapter | None:
    """The adapter that `model` has, or None."""
    return getattr(model, "adapter", None)


adapter = Slot("adapter", Adapter, doc="Trains a few weights beside a frozen model.")
