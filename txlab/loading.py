"""`txlab.build(config)` and `txlab.load(RUN_OR_CHECKPOINT)`: a model from a config, or from a folder."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from txlab.data.tokenizer import Tokenizer
    from txlab.models import Model
    from txlab.schema import Config


def build(config: "Config", tokenizer: "Tokenizer | None" = None) -> "Model":
    """A new model, initialised by `config.seed`; its vocabulary is the tokenizer's where not given."""
    from txlab.models import model_slot
    from txlab.train.checkpoint import find
    from txlab.train.state import seed_everything
    from txlab.train.weights import load_tensors

    config = sized(config, tokenizer)
    seed_everything(config.seed)
    model = model_slot.build(config.model, config.model.dims())
    if config.model.init_from is not None:
        source = find(Path(config.model.init_from))
        load_tensors(model, source.weights(), f"model.init_from={source.path}")
    return model


def sized(config: "Config", tokenizer: "Tokenizer | None") -> "Config":
    """The config with `model.vocab_size` filled in; RequestError where the tokenizer has more ids."""
    given = config.model.vocab_size
    if tokenizer is None:
        return config
    if given is not None and given < tokenizer.vocab_size:
        raise RequestError(
            f"model.vocab_size={given} is below the tokenizer's {tokenizer.vocab_size} ids: raise it, or "
            "leave it out to take the tokenizer's."
        )
    size = given or tokenizer.vocab_size
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=size))


def load(path: str | Path) -> "Model":
    """The model of a checkpoint, or of a run's newest one, in eval mode, with `tokenizer` attached.

    Needs nothing but the folder. RequestError where it is damaged, foreign, or of a missing plugin.
    """
    from txlab.train.checkpoint import find
    from txlab.train.weights import load_tensors

    found = find(Path(path))
    config = saved_config(found.path)
    config.model.init_from = None
    model = build(config)
    load_tensors(model, found.weights(), str(found.path / "weights.safetensors"))
    model.tokenizer = saved_tokenizer(found.path, config)  # pyright: ignore[reportAttributeAccessIssue]
    return model.eval()


def saved_config(checkpoint: Path) -> "Config":
    """The config a checkpoint was trained with."""
    from txlab.core.hydra import from_yaml
    from txlab.train.checkpoint import CONFIG, Checkpoint

    return from_yaml(Checkpoint(checkpoint).config(), str(checkpoint / CONFIG))


def saved_tokenizer(checkpoint: Path, config: "Config") -> "Tokenizer | None":
    """The tokenizer in a checkpoint, None where the model has none."""
    from txlab.data.tokenizer import tokenizer
    from txlab.train.checkpoint import TOKENIZER

    file = checkpoint / TOKENIZER
    return tokenizer.option_of(config.tokenizer).cls.load(file) if file.exists() else None
