"""Tiny directories as transformers writes them, with random weights that matter."""

from pathlib import Path
from typing import Any

import torch
import transformers

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "eager",
}


def peer(family: str = "Llama", **fields: Any) -> Any:
    """A random model of transformers in evaluation mode."""
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **fields})
    kind = f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, kind)(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * (32**-0.5 if parameter.ndim > 1 else 0.5))
    return model


def directory(folder: Path, family: str = "Llama", *, shards: str = "5GB", **fields: Any) -> Any:
    """Write a random model to `folder`, and return it."""
    model = peer(family, **fields)
    model.save_pretrained(folder, max_shard_size=shards)
    return model
