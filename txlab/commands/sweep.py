"""Write a W&B sweep file, whose agents run `python -m txlab` with the values that W&B chooses.

    python -m txlab sweep "+recipe=pretrain model.attn=mha,gqa optim.lr=1e-3,3e-4"
    python -m txlab sweep "+recipe=pretrain optim.lr=1e-3,3e-4" out=lr.yaml metric=val/loss

Keys with several values are the sweep's parameters, a grid; all others stand in its command. Each
value is composed once, so that a wrong one is refused here. The file is then given to W&B:
`wandb sweep FILE` and `wandb agent ID`, as often as there are machines.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from txlab.core.arguments import parse
from txlab.core.errors import RequestError


class Goal(StrEnum):
    """Which way the metric is better."""

    minimize = "minimize"
    maximize = "maximize"


@dataclass
class Arguments:
    """What the verb takes beside overrides."""

    out: str = "sweep.yaml"
    """File to write; it must be new."""
    metric: str = "val/loss"
    """Column of metrics.csv by which W&B ranks the runs."""
    goal: Goal = Goal.minimize
    """Whether less of it is better."""
    project: str = "txlab"
    """W&B project of the sweep."""


def main(words: Sequence[str]) -> int:
    """Check, write and explain the file."""
    import yaml

    arguments, rest = parse(Arguments, separated(words), rest=True)
    target = Path(arguments.out).expanduser()
    if target.exists():
        raise RequestError(f"out={target} exists: name a file that does not.")
    fixed, parameters = split(rest)
    check(fixed, parameters)
    try:
        target.write_text(
            yaml.safe_dump(described(arguments, fixed, parameters), sort_keys=False),
            encoding="utf-8",
        )
    except OSError as error:
        raise RequestError(f"out={target} cannot be written: {error.strerror}.") from error
    sizes = [len(values) for values in parameters.values()]
    runs = 1
    for size in sizes:
        runs *= size
    print(f"{target}: {' x '.join(map(str, sizes))} = {runs} runs")
    print(f"wandb sweep {shlex.quote(str(target))}, then the `wandb agent` line it prints")
    return 0


def separated(words: Sequence[str]) -> list[str]:
    """Words as a shell would split them: several may stand in one, within quotes."""
    try:
        return [part for word in words for part in shlex.split(word)]
    except ValueError as error:
        raise RequestError(f"sweep {' '.join(words)}: {error}.") from error


def split(words: Sequence[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """The words with one value, and by key the values of those with several."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from txlab.core.hydra import prepare
    from txlab.core.hydra.errors import translated

    if flags := [word for word in words if word.startswith("-")]:
        raise RequestError(f"sweep takes no flags, found {flags[0]}: several values make a sweep.")
    fixed: list[str] = []
    parameters: dict[str, list[Any]] = {}
    with translated():
        for word in OverridesParser.create().parse_overrides(prepare(words, multirun=True)):
            if word.get_key_element() == "run_dir":
                raise RequestError("run_dir would be the same for all runs: leave it out.")
            if not word.is_sweep_override():
                fixed.append(str(word.input_line))
                continue
            # `recipe` without its plus: the normaliser adds it again where the agent starts a run.
            key = word.get_key_element().lstrip("+")
            parameters[key] = [_typed(value) for value in word.sweep_string_iterator()]
    if not parameters:
        raise RequestError(
            "no key has several values: write them with commas, such as optim.lr=1e-3,3e-4."
        )
    return fixed, parameters


def check(fixed: Sequence[str], parameters: Mapping[str, Sequence[Any]]) -> None:
    """Compose each value once beside the first ones of the others; RequestError as of a run."""
    from txlab.core.hydra import compose

    first = {key: values[0] for key, values in parameters.items()}
    for key, values in parameters.items():
        for value in values:
            chosen = {**first, key: value}
            compose([*fixed, *(f"{name}={one}" for name, one in chosen.items())])


def described(
    arguments: Arguments, fixed: Sequence[str], parameters: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The sweep as W&B reads it."""
    keys = [word.partition("=")[0] for word in fixed]
    tracked = [] if any(key == "logger" for key in keys) else ["logger=wandb"]
    return {
        "project": arguments.project,
        "program": "txlab",  # shown by W&B; what is run is the command
        "method": "grid",
        "metric": {"name": arguments.metric, "goal": arguments.goal.value},
        "parameters": {key: {"values": list(values)} for key, values in parameters.items()},
        "command": ["${env}", "python", "-m", "txlab", *fixed, *tracked, "${args_no_hyphens}"],
    }


def _typed(value: str) -> Any:
    """Numbers as numbers, for W&B's axes; whatever would be spelled otherwise stays text."""
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        return number if number == number and abs(number) != float("inf") else value
    return value
