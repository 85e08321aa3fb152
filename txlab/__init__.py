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

    size = getattr(config.tokenizer, "vocab_size", None)
    if config.model.vocab_size is None and size is not None:
        sizes = dataclasses.replace(config.model, vocab_size=size)
        config = dataclasses.replace(config, model=sizes)
    return build(config)


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
