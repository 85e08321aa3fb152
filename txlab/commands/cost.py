"""What the composed model costs: parameters, FLOPs, cache, memory, shapes; measured if asked.

python -m txlab cost +recipe=pretrain model.attn=gqa
python -m txlab cost model.dim=512 model.ffn=moe measure=true

Arguments before or among the overrides: measure=true runs every part and tells its milliseconds and
megabytes; trace=false leaves out the shapes through the first layer.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from txlab.core.arguments import parse
from txlab.core.errors import RequestError
from txlab.core.hydra import compose

if TYPE_CHECKING:
    from txlab.schema import Config

Line = tuple[str, ...]


@dataclass
class Arguments:
    """Arguments of the verb."""

    measure: bool = False
    """Run every part, forward and backward, and tell its milliseconds and megabytes."""
    trace: bool = True
    """Tell the shapes through the first layer."""


def main(words: list[str]) -> None:
    """Print the cost of the model that the overrides describe."""
    arguments, overrides = parse(Arguments, words, rest=True)
    config = with_vocabulary(compose(overrides))
    from txlab.train.cost import report, trace
    from txlab.train.measure import measured

    for title, lines in report(config):
        show(title, lines)
    if arguments.trace:
        show(*trace(config))
    if arguments.measure:
        show(*measured(config))


def with_vocabulary(config: "Config") -> "Config":
    """The config with the vocabulary that its tokenizer is asked for, where the model has none."""
    if config.model.vocab_size is not None:
        return config
    from txlab.data.tokenizer import tokenizer

    wanted: Any = getattr(config.tokenizer, "vocab_size", None)
    if wanted is None or not tokenizer.option_of(config.tokenizer).cls.trainable:
        raise RequestError(
            f"the vocabulary of tokenizer={config.tokenizer.name} is not known yet: set "
            "model.vocab_size."
        )
    return replace(config, model=replace(config.model, vocab_size=wanted))


def show(title: str, lines: list[Line]) -> None:
    """A table: words to the left, figures to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    print(title)
    for line in lines:
        aligned = (
            f"{cell:>{width}}" if cell[:1].isdigit() else f"{cell:<{width}}"
            for cell, width in zip(line, widths, strict=True)
        )
        print(("  " + "  ".join(aligned)).rstrip())
    print()
