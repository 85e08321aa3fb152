"""Write a Hugging Face directory as a txlab checkpoint, which needs the directory no more.

    python -m txlab import DIR out=FOLDER

DIR holds config.json, model.safetensors (or shards with their index) and the tokenizer's files.
FOLDER is new; it can be given as ckpt= and as model.init_from=. So can DIR itself, so that this is
only needed to keep or share the model as a checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from txlab.core.arguments import parse
from txlab.core.errors import RequestError
from txlab.core.files import refuse_as_new


@dataclass
class Arguments:
    """What the verb takes beside the directory."""

    out: str
    """Folder to write; it must be new."""


def main(words: Sequence[str]) -> int:
    """Write the checkpoint."""
    from txlab.core.hydra import to_yaml
    from txlab.data.tokenizer import Pretrained
    from txlab.loading import load, saved_config
    from txlab.models import hf
    from txlab.train import checkpoint
    from txlab.train.weights import named_tensors

    arguments, rest = parse(Arguments, words, rest=True)
    if len(rest) != 1 or "=" in rest[0]:
        raise RequestError("import takes one Hugging Face directory and out=FOLDER.")
    source = Path(rest[0]).expanduser()
    target = Path(arguments.out).expanduser().absolute()
    if not hf.is_directory(source):
        raise RequestError(f"{source} is no Hugging Face directory: it has no config.json.")
    refuse_as_new(target, "out=")
    # The checkpoint has the tokenizer itself.
    config = replace(saved_config(source), tokenizer=Pretrained.Config())
    model = load(source)
    files = checkpoint.plain_files(
        named_tensors(model), to_yaml(config), getattr(model, "tokenizer", None)
    )
    checkpoint.write(target, files, {"imported": str(source.absolute())})
    print(f"imported to {target}")
    return 0
