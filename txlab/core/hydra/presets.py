"""What is below the presets of conf/: other people's arguments, by which a misspelt one is told."""

import difflib
from collections.abc import Collection, Iterable
from typing import Any

from omegaconf import OmegaConf

from txlab.core.files import data_folder
from txlab.core.hydra.registry import entries

TRAINER = ("accelerator", "devices", "strategy", "num_nodes", "deterministic", "detect_anomaly")
"""Arguments of Lightning's Trainer that users of txlab have reason to set."""


def missing(key: str) -> str:
    """One line for a key below `trainer`, `logger` or `callbacks` that the config does not have."""
    root, *words = key.split(".")
    said = _of_trainer(key, words) if root == "trainer" else _of_entries(key, root, words)
    return said or f"{key} is not in the composed config: write +{key}=... to add it."


def _of_entries(key: str, root: str, words: list[str]) -> str | None:
    if root not in ("callbacks", "logger"):
        return None
    name, presets = words[0], entries(root)
    if name not in presets:
        return _near(key, f"{root}.", name, presets, words[1:])
    preset = _preset(root, name)
    if name not in preset:
        return f"unknown key {key}. {root}={name} sets keys of {', '.join(map(str, preset))}."
    fields = _fields(preset[name])
    if len(words) > 1 and words[1] not in fields:
        return _near(key, f"{root}.{name}.", words[1], fields, words[2:])
    return f"{key}: this run has no {root}.{name}: add {root}={name} (of several {root}=[...])."


def _of_trainer(key: str, words: list[str]) -> str | None:
    if words == ["strategy"]:
        return f"{key}: this trainer has none: add trainer=fsdp_tp, fsdp or ddp, or +{key}=..."
    if words[0] != "strategy":
        return _near(key, "trainer.", words[0], TRAINER, words[1:])
    fields = _fields(_preset("trainer", "fsdp")["strategy"])
    if words[1] in fields:
        return f"{key}: this trainer's strategy has no fields: add trainer=fsdp or fsdp_tp."
    return _near(key, "trainer.strategy.", words[1], fields, words[2:])


def _near(key: str, parent: str, word: str, known: Collection[str], rest: list[str]) -> str | None:
    if word in known:  # it is right, but not in this preset
        return None
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    if not close:
        return None
    meant = ".".join([parent + close[0], *rest])
    return f"unknown key {key}. Did you mean {meant}? One that is really new is added with +{key}."


def _fields(entry: Iterable[Any]) -> list[str]:
    return [str(field) for field in entry if field != "_target_"]


def _preset(group: str, name: str) -> Any:
    return OmegaConf.load(data_folder("conf") / group / f"{name}.yaml")
