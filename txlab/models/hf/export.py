"""A decoder as a Hugging Face directory: config.json, model.safetensors, the tokenizer's files."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from txlab.core.errors import RequestError, RunError
from txlab.core.files import refuse_as_new
from txlab.data.tokenizer.library import read
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
    documents: dict[str, Any] = {FILE: described}
    template = None
    folder = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    try:
        folder.mkdir(parents=True)
        if tokenizer is not None:
            documents |= _tokenizer_files(tokenizer, folder, model.dims.context)
            template = tokenizer.template
            described |= documents["generation_config.json"]
        for name, content in documents.items():
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            (folder / name).write_text(text, encoding="utf-8")
        if template is not None:
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
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


def _tokenizer_files(tokenizer: Tokenizer, folder: Path, context: int) -> dict[str, Any]:
    """The JSON files that make transformers tokenize as we do, by name."""
    from tokenizers import processors

    tokenizer.save(folder / "tokenizer.json")
    library, _, _ = read(folder / "tokenizer.json")
    bos = tokenizer.bos_id
    if bos is not None and library.encode("").ids[:1] != [bos]:
        token = library.id_to_token(bos)
        library.post_processor = processors.TemplateProcessing(  # pyright: ignore
            single=f"{token} $A", special_tokens=[(token, bos)]
        )
    ends = list(tokenizer.end_ids)
    special = {name: token for name, token in tokenizer.special.items() if token is not None}
    return {
        "tokenizer.json": json.loads(library.to_str()),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            "add_bos_token": bos is not None,
            "clean_up_tokenization_spaces": False,
            "model_max_length": context,
        },
        "generation_config.json": {
            "bos_token_id": bos,
            "eos_token_id": ends[0] if len(ends) == 1 else ends,
            "pad_token_id": tokenizer.pad_id,
        },
    }
