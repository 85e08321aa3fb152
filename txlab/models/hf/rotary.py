"""Rotary settings of a Hugging Face config.json as ours, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from txlab.core.errors import RequestError
from txlab.nn.position import Position, RoPE
from txlab.nn.position.scaling import Scaling, attention_factor

KINDS = {"default": Scaling.none} | {s: Scaling(s) for s in ("linear", "yarn", "llama3")}
"""Their kinds of frequencies that are the same function of the config as ours."""
FIELDS = {
    "factor": "factor",
    "original_context": "original_max_position_embeddings",
    "attention_factor": "attention_factor",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
}
"""Our field and their key."""
READS: dict[Scaling, tuple[str, ...]] = {
    Scaling.none: (),
    Scaling.linear: ("factor",),
    Scaling.yarn: tuple(name for name in FIELDS if not name.endswith("_freq_factor")),
    Scaling.llama3: ("factor", "original_context", "low_freq_factor", "high_freq_factor"),
}
"""The fields that each kind reads; a file's other keys have no effect there, nor here."""
VARYING = {
    "dynamic": "they follow the length of each input, ours are one set for the whole model",
    "longrope": "they change when an input grows beyond the original length, ours never do",
}
"""Why a kind that we have by name is not the same function."""
CHANGES = {"truncate": True, "partial_rotary_factor": 1.0}
"""Further keys that change the frequencies, with the only value that is ours."""


def read_rope(theirs: Mapping[str, Any]) -> RoPE.Config:
    """The rotation; RequestError for frequencies that ours would not equal."""
    key = "rope_parameters" if theirs["rope_parameters"] is not None else "rope_scaling"
    rope = dict(theirs[key] or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in KINDS:
        why = f" ({VARYING[kind]})" if kind in VARYING else ""
        raise RequestError(
            f"{key}: positions of type {kind!r} are not supported{why}; {', '.join(KINDS)} are."
        )
    for name, only in CHANGES.items():
        if rope.get(name, only) != only:
            raise RequestError(f"{key}: {name}={rope[name]} is not supported; expected {only}.")
    scaling = KINDS[kind]
    given: dict[str, Any] = {ours: rope.get(FIELDS[ours]) for ours in READS[scaling]}
    if given.get("original_context") is not None:
        given["original_context"] = int(given["original_context"])
    theta = float(rope.get("rope_theta", theirs["rope_theta"]))
    return RoPE.Config(theta=theta, scaling=scaling, **given)


def write_rope(config: Position.Config, context: int) -> dict[str, Any]:
    """Their `rope_parameters`, the values of what was left open written out."""
    if not isinstance(config, RoPE.Config):
        return {"rope_type": "default", "rope_theta": 10000.0}
    made: dict[str, Any] = {"rope_type": "default", "rope_theta": config.theta}
    if config.scaling in READS:
        found = rope_facts(config, context)
        made["rope_type"] = "default" if config.scaling is Scaling.none else str(config.scaling)
        made |= {FIELDS[name]: found[name] for name in READS[config.scaling]}
    return {key: value for key, value in made.items() if value is not None}


def rope_facts(config: RoPE.Config, context: int) -> dict[str, Any]:
    """The fields, with what is left open filled in, so that equal frequencies compare as equal."""
    found = dataclasses.asdict(config) | {"interleaved": False}  # rows are reordered on the way
    if config.scaling in (Scaling.yarn, Scaling.llama3):
        found["original_context"] = config.original_context or context
    if config.scaling is Scaling.llama3:
        found["low_freq_factor"] = config.low_freq_factor or 1.0
        found["high_freq_factor"] = config.high_freq_factor or 4.0
    if config.scaling is Scaling.yarn:
        found["beta_fast"] = config.beta_fast or 32.0
        found["beta_slow"] = config.beta_slow or 1.0
        found["attention_factor"] = attention_factor(config, context)
        found["mscale"] = found["mscale_all_dim"] = None
    return found
