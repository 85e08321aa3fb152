"""The tokenizer of a data set: given, read from a file, found in the cache, or trained."""

import dataclasses
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from txlab.core.errors import RequestError
from txlab.data.cache import key
from txlab.data.tokenizer.tokenizer import Tokenizer, tokenizer


def obtain(
    wanted: Tokenizer | Tokenizer.Config,
    *,
    cache: Path,
    source: str,
    train: Callable[[Tokenizer], None],
) -> Tokenizer:
    """`wanted` itself, or what this config describes; `train` is called on a new one.

    `source` names what it is trained on: the same source and settings are trained on once.
    """
    if isinstance(wanted, Tokenizer):
        return wanted
    option = tokenizer.option_of(wanted)
    if wanted.path is not None:
        given = option.cls.from_path(wanted)
        missing = [spelling for spelling in wanted.control if spelling not in given.control]
        if missing:
            raise RequestError(
                f"tokenizer.control: {wanted.path} has no control token {' '.join(missing)}; leave "
                "tokenizer.path out to train a tokenizer that has."
            )
        return given
    if not option.cls.trainable:
        raise RequestError(
            f"tokenizer={option.name} is not trained: name its file or directory with "
            "tokenizer.path=PATH."
        )
    made_of = key(
        source=source,
        settings=dataclasses.asdict(wanted),
        code=[_code(cls) for cls in option.cls.__mro__ if issubclass(cls, Tokenizer)],
        library=version("tokenizers"),
    )
    file = cache / "tokenizers" / f"{made_of}.json"
    if not file.exists():
        fresh = tokenizer.build(wanted)
        train(fresh)
        fresh.save(file)
    return option.cls.load(file)


def _code(cls: type) -> str:
    """The module as it is written: one under development is trained anew when it changes."""
    try:
        return inspect.getsource(sys.modules[cls.__module__])
    except (KeyError, OSError, TypeError):
        return cls.__qualname__
