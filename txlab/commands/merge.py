"""Work a run's adapter into its weights: a plain checkpoint, which needs no other folder.

    python -m txlab merge ckpt=RUN FOLDER

FOLDER is new; it can be given as ckpt= and as model.init_from=. The run is left as it is.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from txlab.core.arguments import parse
from txlab.core.errors import RequestError
from txlab.core.files import refuse_as_new


@dataclass
class Arguments:
    """What the verb takes beside the folder."""

    ckpt: str
    """Run folder or checkpoint that has an adapter."""


def main(words: Sequence[str]) -> int:
    """Write the merged checkpoint."""
    arguments, rest = parse(Arguments, words, rest=True)
    if len(rest) != 1 or "=" in rest[0]:
        raise RequestError("merge takes ckpt=RUN and one folder to write, which must be new.")
    target = Path(rest[0]).expanduser().absolute()
    merge(Path(arguments.ckpt).expanduser(), target)
    print(f"merged into {target}")
    return 0


def merge(source: Path, target: Path) -> None:
    """The plain checkpoint of `source` at `target`; RequestError where there is nothing to do."""
    from txlab.core.hydra import to_yaml
    from txlab.loading import load, saved_config
    from txlab.nn.adapter import NoAdapter
    from txlab.train import checkpoint
    from txlab.train.weights import named_tensors

    found = checkpoint.find(source)
    if not found.has(checkpoint.ADAPTER):
        raise RequestError(f"{found.path} has no adapter: its weights are plain already.")
    refuse_as_new(target)
    config = saved_config(found.path)
    plain = dataclasses.replace(
        config,
        adapter=NoAdapter.Config(),
        model=dataclasses.replace(config.model, init_from=None),
    )
    text, model = to_yaml(plain), load(found.path)
    writers = checkpoint.plain_files(named_tensors(model), text, getattr(model, "tokenizer", None))
    checkpoint.write(target, writers, {"merged": str(found.path)})
