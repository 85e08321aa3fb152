"""A directory as transformers writes them: config.json, safetensors, the tokenizer's files."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from txlab.models.decoder import Decoder
from txlab.models.hf import config
from txlab.models.hf.mapping import table_of
from txlab.models.hf.read import Tensors
from txlab.models.hf.weights import Weights


def is_directory(path: Path) -> bool:
    """Whether `path` is a directory of a Hugging Face model."""
    return (path / config.FILE).is_file()


def model_config(path: Path) -> Decoder.Config:
    """The config of the model in a directory; RequestError names what we cannot build."""
    return config.config_of(config.read(path), str(path / config.FILE))


def weights(path: Path) -> Mapping[str, Tensor]:
    """The weights in a directory under our names, complete, each read when it is asked for."""
    family = str(config.read(path).get("model_type"))
    wanted, tensors = model_config(path), Tensors(path)
    found = Weights(tensors, wanted, table_of(family), str(path), tensors.shapes)
    tensors.require_floats(found.sources())
    return found
