"""The keys of the typed config: whether `a.b.c` exists, what it holds, what is near it."""

import dataclasses
import difflib
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from txlab.core.config import check_truth
from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS

FREE = ("trainer", "logger", "callbacks", "hydra")
"""Mappings of other people's keys, which nobody here can check."""
GROUPS = ("recipe", "debug", "trainer", "logger", "callbacks")
"""Groups of YAML files, beside the slots."""
TEXTS = frozenset({"matches", "prompt", "sample", "stop", "system", "template", "text"})
"""Keys whose value is text for a reader: taken letter by letter."""
PATHS = frozenset({"ckpt", "dir", "file", "init_from", "path", "resume", "run_dir"})
"""Keys whose value is a path, as are those that end in _path, _dir and _file."""


OWNED = {
    "max_steps": "train.steps",
    "min_steps": "train.steps",
    "max_epochs": "train.epochs",
    "min_epochs": "train.epochs",
    "max_time": "train.steps",
    "accumulate_grad_batches": "data.micro_batch_size",
    "gradient_clip_val": "train.clip",
    "gradient_clip_algorithm": "train.clip",
    "precision": "train.precision",
    "val_check_interval": "train.val_every",
    "check_val_every_n_epoch": "train.val_every",
    "limit_val_batches": "train.val_batches",
    "limit_train_batches": "train.steps",
    "log_every_n_steps": "train.log_every",
    "default_root_dir": "run_dir",
    "overfit_batches": "debug=overfit",
    "fast_dev_run": "debug=fast",
    "enable_checkpointing": "train.save_every",
    "logger": "logger",
    "callbacks": "callbacks",
    "use_distributed_sampler": "nothing: txlab shards the order of the data itself",
    "reload_dataloaders_every_n_epochs": "nothing: the order of the data is txlab's own",
}
"""Arguments of Lightning's Trainer that txlab sets, and the key to use instead."""


def owned(key: str) -> str:
    """The refusal of a Trainer argument that txlab sets itself."""
    return f"trainer.{key} is set by txlab: use {OWNED[key]}."


def is_text(key: str) -> bool:
    return key.rpartition(".")[2] in TEXTS


def is_path(key: str) -> bool:
    leaf = key.rpartition(".")[2]
    return leaf in PATHS or leaf.endswith(("_path", "_dir", "_file"))


def types_of(key: str) -> list[Any]:
    """Types the field at `key` has in the options it exists in; RequestError where in none.

    Fields of all options count, since which one is chosen is known only once all is composed.
    """
    from txlab.schema import Config

    at: list[Any] = [Config]
    walked = ""
    for word in key.split("."):
        owners = [kind for kind in at if dataclasses.is_dataclass(kind)]
        if not owners:
            if any(_is_mapping(kind) for kind in at):
                return [Any]
            raise RequestError(f"unknown key {key}: {walked} is a single value.")
        fields = {f.name: f for owner in owners for f in dataclasses.fields(owner)}
        if word not in fields:
            raise RequestError(unknown_key(key, walked, list(fields)))
        walked = f"{walked}.{word}".lstrip(".")
        if walked in SLOTS:
            slot = SLOTS[walked]
            at = [o.config for o in slot.options.values()] or [slot.interface.Config]
        else:
            found = [
                f.type for owner in owners for f in dataclasses.fields(owner) if f.name == word
            ]
            at = [kind for entry in found for kind in parts(entry)]
    return at


def is_words(key: str) -> bool:
    """Whether the field at `key` is a list of words: one may then stand without brackets."""
    return all(
        get_origin(kind) is list
        and isinstance(of := get_args(kind)[0], type)
        and issubclass(of, str)
        for kind in types_of(key)
    )


def check_truths(tree: Mapping[Any, Any], path: str = "") -> None:
    """`check_truth` for all that a file says; keys that do not exist are left to others."""
    for name, value in tree.items():
        key = f"{path}.{name}".lstrip(".")
        if isinstance(value, Mapping):
            check_truths(value, key)
            continue
        try:
            kinds = types_of(key)
        except RequestError:
            continue
        if all(kind is bool for kind in kinds):
            check_truth(key, value)


def parts(kind: Any) -> list[Any]:
    """The members of a union but for None; the type itself otherwise."""
    if get_origin(kind) in (Union, UnionType):
        return [member for member in get_args(kind) if member is not NoneType]
    return [kind]


def unknown_key(key: str, parent: str, fields: list[str]) -> str:
    """One line for a key that does not exist: near ones, the same word elsewhere, else all."""
    leaf = key[len(parent) :].lstrip(".").partition(".")[0]
    close = difflib.get_close_matches(leaf, fields, n=3, cutoff=0.6)
    near = [f"{parent}.{name}".lstrip(".") for name in close]
    near = near or [path for path in every_key() if path.endswith(f".{leaf}")][:3]
    if near:
        return f"unknown key {key}. Did you mean {' or '.join(near)}?"
    where = f" Keys of {parent}:" if parent else " Keys:"
    return f"unknown key {key}.{where} {', '.join(sorted(f for f in fields if f != 'name'))}."


def doc(key: str) -> str:
    """What the field at `key` is, in the words of its owner."""
    from txlab.core.docs import field_docs
    from txlab.schema import Config

    parent, _, leaf = key.rpartition(".")
    owner = SLOTS[parent].interface.Config if parent in SLOTS else Config
    return field_docs(owner).get(leaf, expected(key))


def owners_of(key: str) -> list[str]:
    """Options, as `model.attn=gqa`, that have the field at `key`."""
    parent, _, leaf = key.rpartition(".")
    if parent not in SLOTS:
        return []
    options = SLOTS[parent].options.values()
    return [
        f"{parent}={o.name}"
        for o in options
        if leaf in {f.name for f in dataclasses.fields(o.config)}
    ]


def every_key() -> list[str]:
    """All keys of the typed config, over all options of all slots, in order of declaration."""
    from txlab.schema import Config

    found: dict[str, None] = {}

    def visit(kind: Any, path: str) -> None:
        for field in dataclasses.fields(kind):
            here = f"{path}.{field.name}".lstrip(".")
            if field.name == "name" and path in SLOTS:
                continue
            found[here] = None
            if here in SLOTS:
                for option in SLOTS[here].options.values():
                    visit(option.config, here)
            else:
                for member in parts(field.type):
                    if dataclasses.is_dataclass(member):
                        visit(member, here)

    visit(Config, "")
    return list(found)


def expected(key: str) -> str:
    """What the field at `key` wants, in words."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    said = []
    for kind in types_of(key):
        if dataclasses.is_dataclass(kind):
            return f"keys below it, such as {key}.{dataclasses.fields(kind)[0].name}=..."
        if get_origin(kind) in (list, tuple):
            said.append("a list such as [a,b]")
        elif isinstance(kind, type) and issubclass(kind, Enum):
            said.append("one of " + ", ".join(member.name for member in kind))
        else:
            said.append(words.get(kind) or _name(kind))
    return " or ".join(dict.fromkeys(said))


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _is_mapping(kind: Any) -> bool:
    return kind is Any or kind is dict or get_origin(kind) is dict
