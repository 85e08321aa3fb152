"""txlab: transformers from interchangeable parts.

`compose` makes a typed config, `build` a model of it, `load` the model of a run or checkpoint.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlab.core.slot import Slot
    from txlab.models import Model
    from txlab.schema import Config

__all__ = ["Slot", "build", "compose", "load"]
__version__ = "0.1.0"


def compose(overrides: Sequence[str] = ()) -> "Config":
    """The typed config that the command line `python -m txlab *overrides` would train."""
    from txlab.core.hydra import compose, prepare
    from txlab.loading import inherited

    return inherited(compose(overrides), prepare(overrides))[0]


def build(config: "Config") -> "Model":
    """A freshly initialised model; the tokenizer's size where `model.vocab_size` is None."""
    import dataclasses

    from txlab.loading import build

    size = config.model.vocab_size or getattr(config.tokenizer, "vocab_size", None)
    model = dataclasses.replace(config.model, vocab_size=size)
    return build(dataclasses.replace(config, model=model))


def load(path: str | Path, *, merge: bool = True) -> "Model":
    """The trained model of a run folder or checkpoint, in eval mode; needs nothing else.

    An adapter is worked into the weights; with `merge=False` it stays beside them.
    """
    from txlab.loading import load

    return load(path, merge=merge)


def __getattr__(name: str) -> Any:
    if name == "Slot":  # lazily: it brings Hydra with it
        from txlab.core.slot import Slot

        return Slot
    raise AttributeError(f"module 'txlab' has no attribute {name!r}")
