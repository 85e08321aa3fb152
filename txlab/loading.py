"""A model from a config (`build`), or from the folder of a run or checkpoint (`load`)."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from txlab.data.tokenizer import Tokenizer
    from txlab.models import Model
    from txlab.schema import Config


def build(config: "Config", *, weights: bool = True) -> "Model":
    """A new model, initialised by `config.seed`, or with the weights at `model.init_from`.

    `weights=False`: these are not read, since others are about to be loaded.
    """
    from txlab.models import model_slot
    from txlab.train.checkpoint import find
    from txlab.train.state import seeded
    from txlab.train.weights import load_tensors

    with seeded(config.seed):
        model = model_slot.build(config.model, config.model.dims())
    if weights and config.model.init_from is not None:
        source = find(Path(config.model.init_from))
        load_tensors(model, source.weights(), f"model.init_from={source.path}")
    return model


def sized(config: "Config", tokenizer: "Tokenizer | None") -> "Config":
    """The config with `model.vocab_size` filled in; RequestError where the tokenizer has more."""
    given = config.model.vocab_size
    if tokenizer is None:
        return config
    if given is not None and given < tokenizer.vocab_size:
        raise RequestError(
            f"model.vocab_size={given} is below the tokenizer's {tokenizer.vocab_size} ids: raise "
            "it, or leave it out to take the tokenizer's."
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
    model = build(config, weights=False)
    load_tensors(model, found.weights(), str(found.path / "weights.safetensors"))
    object.__setattr__(model, "tokenizer", saved_tokenizer(found.path, config))
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


def inherited(config: "Config", words: Sequence[str]) -> tuple["Config", list[str]]:
    """With `model.init_from`, the config with that model's own choices and sizes.

    Only the command line's `model.*` words (normalised) change them; the second value names each
    change. Recipes' model keys give way: they describe a model that is trained from scratch.
    """
    from txlab.core.hydra.surgery import amend, changes
    from txlab.train.checkpoint import find

    source = config.model.init_from
    if source is None:
        return config, []
    saved = saved_config(find(Path(source)).path)
    saved.model.init_from = source
    for word in words:
        if word.startswith("tokenizer"):
            raise RequestError(f"{word}: model.init_from brings its tokenizer along; leave it out.")
    ours = [
        word
        for word in words
        if word.startswith(("model=", "model.")) and not word.startswith("model.init_from=")
    ]
    amended = amend(saved, ours, ("model",), source).model
    config = dataclasses.replace(config, model=amended, tokenizer=saved.tokenizer)
    return config, changes(saved.model, amended, "model")
