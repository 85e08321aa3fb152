"""Write a trained decoder as a Hugging Face directory, which transformers and others read.

    python -m txlab export ckpt=RUN FOLDER
    python -m txlab export ckpt=RUN FOLDER dtype=bfloat16

FOLDER is new: config.json, model.safetensors, tokenizer and chat template. An adapter is worked
into the weights. The family (llama, mistral, qwen2, qwen3, gpt2) is the one that has all choices of
the model; where none has, they are named and nothing is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from txlab.core.arguments import parse
from txlab.core.errors import RequestError


class Stored(StrEnum):
    """How numbers are stored; only float32 keeps every bit."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@dataclass
class Arguments:
    """What the verb takes beside the folder."""

    ckpt: str
    """Run folder or checkpoint to write."""
    dtype: Stored = Stored.float32
    """How the weights are stored."""


def main(words: Sequence[str]) -> int:
    """Write the directory."""
    import torch

    from txlab.loading import load
    from txlab.models import hf

    arguments, rest = parse(Arguments, words, rest=True)
    if len(rest) != 1 or "=" in rest[0]:
        raise RequestError("export takes ckpt=RUN and one folder to write, which must be new.")
    target = Path(rest[0]).expanduser().absolute()
    model = load(Path(arguments.ckpt).expanduser())
    dtype = getattr(torch, arguments.dtype)
    family = hf.export(model, getattr(model, "tokenizer", None), target, dtype)
    print(f"exported to {target}, a {family} model in {arguments.dtype}")
    return 0
