"""Write a trained model as a Hugging Face directory, or its weights as one safetensors file.

    python -m txlab export ckpt=RUN FOLDER
    python -m txlab export ckpt=RUN FOLDER dtype=bfloat16
    python -m txlab export ckpt=RUN/best weights.safetensors
    python -m txlab export ckpt=RUN adapter.safetensors merge=false

FOLDER is new: config.json, model.safetensors, tokenizer and chat template. An adapter is worked
into the weights. The family (llama, mistral, qwen2, qwen3, gpt2) is the one that has all choices of
the model; where none has, they are named and nothing is written.

A name that ends in .safetensors is one file of any model's tensors under the names they have in
txlab.build(config), a tied one once, and the run's config among its metadata. With merge=false an
adapter stays beside the weights, its tensors as adapter.NAME.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from txlab.core.arguments import parse
from txlab.core.errors import RequestError, RunError

if TYPE_CHECKING:
    import torch


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
    merge: bool = True
    """Work an adapter into the weights; false: keep it beside them, in a .safetensors file."""


def main(words: Sequence[str]) -> int:
    """Write the directory."""
    import torch

    from txlab.loading import load
    from txlab.models import hf

    arguments, rest = parse(Arguments, words, rest=True)
    if len(rest) != 1 or "=" in rest[0]:
        raise RequestError("export takes ckpt=RUN and one folder to write, which must be new.")
    target = Path(rest[0]).expanduser().absolute()
    dtype = getattr(torch, arguments.dtype)
    if target.suffix == ".safetensors":
        count = tensor_file(Path(arguments.ckpt).expanduser(), target, dtype, arguments.merge)
        print(f"exported to {target}, {count} tensors in {arguments.dtype}")
        return 0
    if target.suffix in (".bin", ".pt", ".pth", ".ckpt", ".gguf"):
        raise RequestError(
            f"{rest[0]}: export writes a folder, or a file that ends in .safetensors, not in "
            f"{target.suffix}."
        )
    if not arguments.merge:
        raise RequestError("merge=false is for a file: name one that ends in .safetensors.")
    model = load(Path(arguments.ckpt).expanduser())
    family = hf.export(model, getattr(model, "tokenizer", None), target, dtype)
    print(f"exported to {target}, a {family} model in {arguments.dtype}")
    return 0


def tensor_file(source: Path, target: Path, dtype: "torch.dtype", merge: bool) -> int:
    """Write the tensors of a run's model to one file, whole or not at all; how many there are."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from txlab.core.files import refuse_as_new
    from txlab.core.hydra import to_yaml
    from txlab.loading import folder_of, load, saved_config
    from txlab.train.weights import adapter_tensors, named_tensors

    refuse_as_new(target)
    folder = folder_of(source)
    model = load(folder, merge=merge)
    found = dict(named_tensors(model))
    found |= {f"adapter.{name}": t for name, t in (adapter_tensors(model) or {}).items()}
    plain = {
        name: (t.to(dtype) if t.is_floating_point() else t).detach().cpu().contiguous()
        for name, t in found.items()
    }
    half = target.with_name(f".tmp-{target.name}")
    try:
        save_file(plain, half, metadata={"format": "pt", "config": to_yaml(saved_config(folder))})
        half.replace(target)
    except (OSError, SafetensorError) as error:
        half.unlink(missing_ok=True)
        raise RunError(f"writing {target} failed ({error}): make room and try again.") from error
    return len(plain)
