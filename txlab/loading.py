"""A model from a config (`build`), or from the folder of a run or checkpoint (`load`)."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor

    from txlab.data.tokenizer import Tokenizer
    from txlab.models import Model
    from txlab.schema import Config
    from txlab.train.origin import Origin


def build(config: "Config", *, weights: bool = True) -> "Model":
    """A new model, initialised by `config.seed`, or with the weights at `model.init_from`.

    Its adapter is in it, if it is to have one. `weights=False`: these are not read, since others
    are about to be loaded.
    """
    from txlab.models import model_slot
    from txlab.nn.adapter import adapter
    from txlab.train.state import seeded

    with seeded(config.seed):
        model = model_slot.build(config.model, config.model.dims())
    with seeded(config.seed):
        adapter.build(config.adapter).inject(model)
    if weights and config.model.init_from is not None:
        Source(Path(config.model.init_from)).fill(model)
    return model


@dataclass(frozen=True)
class Source:
    """Plain weights at a place: a run, a checkpoint, a Hugging Face directory.

    An adapter found there is worked into them.
    """

    place: Path

    @cached_property
    def path(self) -> Path:
        """The folder that holds them."""
        return folder_of(self.place)

    @cached_property
    def tensors(self) -> Mapping[str, "Tensor"]:
        """The tensors by name, on the CPU."""
        from txlab.train.checkpoint import ADAPTER, Checkpoint
        from txlab.train.weights import named_tensors

        if Checkpoint(self.path).has(ADAPTER):
            return named_tensors(load(self.path))
        return saved_weights(self.path)

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of what is stored, whatever a merge makes of it on this machine."""
        from txlab.train.checkpoint import ADAPTER, Checkpoint
        from txlab.train.origin import fingerprint, read_origin

        found = Checkpoint(self.path)
        if not found.has(ADAPTER):
            return fingerprint(self.tensors)
        origin = read_origin(found)
        base = origin.sha256 if origin is not None else fingerprint(found.weights())
        return fingerprint(found.adapter(), on=base)

    def fill(self, model: "Model") -> None:
        """Copy the weights into `model`; RequestError where they do not fit.

        Only the number of tokens may be another one (`txlab.models.resize`).
        """
        from txlab.models.resize import resized
        from txlab.train.weights import load_tensors

        load_tensors(model, resized(self.tensors, model), f"model.init_from={self.path}")

    def origin(self) -> "Origin":
        """Place and fingerprint, for a checkpoint that builds on these weights."""
        from txlab.train.origin import Origin

        return Origin(str(self.path), self.sha256)


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


def load(path: str | Path, *, merge: bool = True) -> "Model":
    """The model of a checkpoint, or of a run's newest one, in eval mode, with `tokenizer` attached.

    A Hugging Face directory is one too. Needs nothing but the folder, and for a checkpoint of an
    adapter alone the weights it names. An adapter is worked into the weights, so that the model is
    a plain one; with `merge=False` it stays beside them. RequestError where the folder is damaged,
    foreign, or of a missing plugin.
    """
    from txlab.nn.adapter import adapter_of
    from txlab.train.checkpoint import ADAPTER, WEIGHTS, Checkpoint
    from txlab.train.weights import load_adapter, load_tensors

    found = Checkpoint(folder_of(Path(path)))
    config = saved_config(found.path)
    model = build(config, weights=False)
    base = start_of(found.path) if found.has(ADAPTER) and not found.has(WEIGHTS) else None
    if base is None:
        load_tensors(model, saved_weights(found.path), str(found.path / WEIGHTS))
    else:
        base.fill(model)
    adapter = adapter_of(model)
    if adapter is not None:
        load_adapter(model, found.adapter(), str(found.path / ADAPTER))
        if merge:
            adapter.bake(model)
    object.__setattr__(model, "tokenizer", saved_tokenizer(found.path, config))
    return model.eval()


def move(model: "Model", device: str) -> None:
    """Move the model to a device by name; RequestError where there is none such."""
    try:
        model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise RequestError(f"device={device}: {str(error).splitlines()[0]}") from error


def start_of(checkpoint: Path) -> Source | None:
    """The weights that a checkpoint's run started from and that it still needs; None: no others.

    RequestError where they are gone or have changed.
    """
    from txlab.train.checkpoint import Checkpoint
    from txlab.train.origin import read_origin

    origin = read_origin(Checkpoint(checkpoint))
    if origin is None:
        return None
    source = Source(Path(origin.path))
    origin.verify(source.sha256, checkpoint)
    return source


def load_start(checkpoint: Path) -> "Model":
    """The model as it was when the checkpoint's run started, in eval mode."""
    config = saved_config(checkpoint)
    source = start_of(checkpoint)
    model = build(config, weights=source is None)
    if source is not None:
        source.fill(model)
    return model.eval()


def folder_of(path: Path) -> Path:
    """The folder of the model at `path`: a checkpoint, a run's newest one, a foreign directory."""
    from txlab.models import hf
    from txlab.train.checkpoint import find

    return path if hf.is_directory(path) else find(path).path


def saved_weights(checkpoint: Path) -> Mapping[str, "Tensor"]:
    """The tensors in a checkpoint by name, on the CPU."""
    from txlab.models import hf
    from txlab.train.checkpoint import Checkpoint

    if hf.is_directory(checkpoint):
        return hf.weights(checkpoint)
    return Checkpoint(checkpoint).weights()


def saved_config(checkpoint: Path) -> "Config":
    """The config a checkpoint was trained with; of a foreign directory its model and tokenizer."""
    from txlab.core.hydra import from_yaml
    from txlab.data.tokenizer import Pretrained
    from txlab.models import hf
    from txlab.schema import Config
    from txlab.train.checkpoint import CONFIG, Checkpoint

    if hf.is_directory(checkpoint):
        found = hf.model_config(checkpoint)
        return Config(model=found, tokenizer=Pretrained.Config(path=str(checkpoint)))
    return from_yaml(Checkpoint(checkpoint).config(), str(checkpoint / CONFIG))


def saved_tokenizer(checkpoint: Path, config: "Config") -> "Tokenizer | None":
    """The tokenizer in a checkpoint, None where the model has none."""
    from txlab.data.tokenizer import tokenizer
    from txlab.train.checkpoint import TOKENIZER, Checkpoint

    file = checkpoint / TOKENIZER
    if not file.exists():
        return None
    found = tokenizer.option_of(config.tokenizer).cls.load(file)
    if found.vocab_size <= (config.model.vocab_size or 0):  # more ids are refused by their number
        Checkpoint(checkpoint).verify(TOKENIZER)
    return found


def inherited(config: "Config", words: Sequence[str]) -> tuple["Config", list[str]]:
    """With `model.init_from`, the config with that model's own choices and sizes.

    Only the command line's `model.*` words (normalised) change them; the second value names each
    change. Recipes' model keys give way: they describe a model that is trained from scratch.
    """
    from txlab.core.hydra.surgery import amend, changes

    source = config.model.init_from
    if source is None:
        return config, []
    saved = saved_config(folder_of(Path(source)))
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
