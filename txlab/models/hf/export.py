"""A decoder as a Hugging Face directory: config.json, model.safetensors, the tokenizer's files."""

import json
import os
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from txlab.core.errors import RequestError, RunError
from txlab.core.files import refuse_as_new
from txlab.data.tokenizer import directory
from txlab.data.tokenizer.tokenizer import Tokenizer
from txlab.models.decoder import Decoder
from txlab.models.hf.config import FILE
from txlab.models.hf.describe import describe
from txlab.models.hf.mapping import interleave, table_of
from txlab.models.hf.read import WEIGHTS
from txlab.models.hf.weights import theirs
from txlab.models.model import Model
from txlab.nn.position import RoPE


def export(
    model: Model, tokenizer: Tokenizer | None, target: Path, dtype: torch.dtype = torch.float32
) -> str:
    """Write `target`, which must be new, and return the family it is of; whole or not at all.

    RequestError names what no family of theirs can express.
    """
    refuse_as_new(target)
    config = model.config
    if not isinstance(model, Decoder) or not isinstance(config, Decoder.Config):
        raise RequestError(f"a {type(model).__name__} cannot be exported yet: decoders can.")
    described = describe(config)
    tensors = tensors_of(model, described["model_type"], dtype)
    described["dtype"] = str(dtype).removeprefix("torch.")
    texts: dict[str, str] = {}
    if tokenizer is not None:
        texts = directory.texts(tokenizer, length=model.dims.context)
        described |= json.loads(texts["generation_config.json"])
    texts[FILE] = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    folder = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    try:
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / WEIGHTS).chmod(0o644)  # the library makes it readable for its owner only
        folder.rename(target)
    except (OSError, SafetensorError) as error:
        raise RunError(f"writing {target} failed ({error}): make room and try again.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return described["model_type"]


def tensors_of(model: Decoder, family: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The weights under their names; tied ones once, rotary pairs in the halves of theirs."""
    own: dict[str, Tensor] = {name: p.detach() for name, p in model.named_parameters()}
    if isinstance(model.config.pos, RoPE.Config) and model.config.pos.interleaved:
        own = interleave(own, model.dims.head_dim, back=True)
    made = theirs(own, table_of(family))
    return {name: tensor.to("cpu", dtype).contiguous() for name, tensor in made.items()}
