"""What a W&B agent does with a sweep file: propose values, build the command of an arm.

The proposals are those of W&B's own package `sweeps`; the commands are checked in the tests against
those that `wandb agent` builds.
"""

import contextlib
import importlib
import math
import os
import random
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError

_MODULE = "txlab"
_INSTALL = (
    "pip install 'txlab[sweeps]' and pip install --no-deps sweeps==0.3.0 (its own limit, numpy<2, "
    "is older than it needs)"
)


@dataclass(frozen=True)
class Trial:
    """An arm as the search sees it: values by parameter, the metric at each validation."""

    values: dict[str, Any]
    state: str
    """finished, failed or running."""
    history: list[float] = field(default_factory=list)


def read(file: Path) -> dict[str, Any]:
    """A sweep file whose arms can be run here; RequestError where one line is wrong."""
    import yaml

    try:
        sweep = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} is no YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(sweep, dict) or not isinstance(sweep.get("parameters"), dict):
        raise RequestError(f"{file} is no sweep file: it names no parameters.")
    if wrong := _package().schema_violations_from_proposed_config(sweep):
        said = "; ".join(" ".join(str(line).split()) for line in wrong[:3])
        raise RequestError(f"{file}: {said[:300]}.")
    for key, entry in sweep["parameters"].items():
        if "parameters" in entry:
            raise RequestError(
                f"{file}: {key} is nested, which would replace all of {key}: write its leaves as "
                f"{key}.LEAF, which keep their neighbours."
            )
    built = sweep.get("command") or []
    if not isinstance(built, list) or _MODULE not in built or "${args_no_hyphens}" not in built:
        raise RequestError(
            f"{file}: command must run `python -m txlab ...` with ${{args_no_hyphens}}; "
            "`python -m txlab sweep` writes one."
        )
    command(built, {})
    return sweep


def command(template: Sequence[Any], values: Mapping[str, Any]) -> list[str]:
    """The arm's command line, as `wandb agent` builds it."""
    words = [f"{key}={value}" for key, value in values.items()]
    macros = {
        "env": ["/usr/bin/env"],
        "interpreter": ["python"],
        "program": [_MODULE],
        "args": [f"--{word}" for word in words],
        "args_no_hyphens": words,
        "args_append_hydra": [f"+{word}" for word in words],
        "args_override_hydra": [f"++{word}" for word in words],
    }
    made: list[str] = []
    for entry in template:
        text = re.sub(
            r"\$\{envvar:([A-Z0-9_]*)\}", lambda m: os.environ.get(m[1], m[1]), str(entry)
        )
        macro = re.fullmatch(r"\$\{(.*)\}", text)
        if macro is None:
            made.append(text)
        elif macro[1] in macros:
            made += macros[macro[1]]
        else:
            raise RequestError(f"command: {text} is unknown; there are {', '.join(macros)}.")
    return made


def overrides(line: Sequence[str]) -> list[str]:
    """The words of a command line that txlab is given."""
    return list(line[list(line).index(_MODULE) + 1 :])


def propose(sweep: Mapping[str, Any], trials: Sequence[Trial], seed: int) -> dict[str, Any] | None:
    """Values of the next arm; None where a grid is used up.

    What is random in it follows from `seed` and the number of trials.
    """
    import numpy

    before, before_numpy = random.getstate(), numpy.random.get_state()
    random.seed(f"{seed}/{len(trials)}")
    numpy.random.seed(random.getrandbits(32))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = _package().next_run(dict(sweep), _runs(sweep, trials))
    except ValueError as error:
        raise RequestError(f"the sweep cannot be searched: {error}.") from error
    finally:
        random.setstate(before)
        numpy.random.set_state(before_numpy)
    if run is None:
        return None
    return {key: _plain(entry["value"]) for key, entry in run.config.items()}


def is_to_stop(sweep: Mapping[str, Any], trials: Sequence[Trial], place: int) -> bool:
    """Whether `early_terminate` wants the running trial at `place` to end."""
    if "early_terminate" not in sweep or not trials[place].history:
        return False
    runs = _runs(sweep, trials)
    return any(run.name == str(place) for run in _package().stop_runs(dict(sweep), runs))


def _runs(sweep: Mapping[str, Any], trials: Sequence[Trial]) -> list[Any]:
    package = _package()
    metric = sweep.get("metric", {}).get("name", "loss")
    return [
        package.SweepRun(
            name=str(place),
            state=package.RunState[trial.state],
            config={key: {"value": value} for key, value in trial.values.items()},
            history=[{metric: value} for value in trial.history if math.isfinite(value)],
            summary_metrics={metric: trial.history[-1]} if trial.history else {},
        )
        for place, trial in enumerate(trials)
    ]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _package() -> Any:
    """W&B's package of proposals, whose import warns of its own age."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(None):
            warnings.simplefilter("ignore")
            return importlib.import_module("sweeps")
    except ImportError as error:
        raise RequestError(f"agent needs W&B's package sweeps: {_INSTALL}.") from error
