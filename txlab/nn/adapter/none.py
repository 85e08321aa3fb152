"""No adapter: the whole model trains."""

import contextlib
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from txlab.nn.adapter.adapter import Adapter, adapter


@adapter("none")
class NoAdapter(Adapter):
    """No adapter: all weights train; `adapter=null` is the same."""

    @dataclass
    class Config(Adapter.Config):
        """No fields."""

    exempt: ClassVar[dict[str, str]] = {
        "changes_the_model": "there is nothing to change it",
        "trains_nothing_else": "the whole model trains",
    }

    def inject(self, model: nn.Module) -> None:
        pass

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        return {}

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        return model.state_dict(keep_vars=True)

    def off(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def merge(self, model: nn.Module) -> None:
        pass

    def unmerge(self, model: nn.Module) -> None:
        pass

    def bake(self, model: nn.Module) -> None:
        pass

    def describe(self, model: nn.Module) -> str:
        count = sum(parameter.numel() for parameter in model.parameters())
        return f"none, all {count:,} parameters train"
