"""Write a W&B sweep file, whose agents run `python -m txlab` with the values that are chosen.

    python -m txlab sweep "+recipe=pretrain model.attn=mha,gqa optim.lr=1e-3,3e-4"
    python -m txlab sweep "+recipe=pretrain optim.lr=tag(log,interval(1e-4,1e-2))" method=bayes

Keys with several values, or a range, are the sweep's parameters; all others stand in its command.
Each value is composed once, so that a wrong one is refused here. The file is then run here, by
`python -m txlab agent FILE`, or given to W&B: `wandb sweep FILE` and `wandb agent ID`, as often as
there are machines.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from txlab.core.arguments import parse
from txlab.core.errors import RequestError
from txlab.schema import Goal


class Method(StrEnum):
    """How the next values are chosen."""

    grid = "grid"
    random = "random"
    bayes = "bayes"


@dataclass
class Arguments:
    """What the verb takes beside overrides."""

    out: str = "sweep.yaml"
    """File to write; it must be new."""
    method: Method = Method.grid
    """grid: every combination; random; bayes: near the best ones so far."""
    metric: str = "val/loss"
    """Column of metrics.csv by which the runs are ranked."""
    goal: Goal = Goal.minimize
    """Whether less of it is better."""
    early_terminate: int | None = None
    """Validations after which Hyperband may end a weak run; null: each runs to its end."""
    run_cap: int | None = None
    """Most runs of the whole sweep; null: no end but that of a grid."""
    project: str = "txlab"
    """W&B project of the sweep."""


def main(words: Sequence[str]) -> int:
    """Check, write and explain the file."""
    import yaml

    arguments, rest = parse(Arguments, separated(words), rest=True)
    for name in ("early_terminate", "run_cap"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise RequestError(f"{name}={value}: expected at least 1.")
    target = Path(arguments.out).expanduser()
    if target.exists():
        raise RequestError(f"out={target} exists: name a file that does not.")
    fixed, parameters = split(rest)
    for key, entry in parameters.items():
        if "values" not in entry and arguments.method is Method.grid:
            raise RequestError(
                f"{key} is a range, which has no grid: add method=random or method=bayes."
            )
    check(fixed, {key: examples(entry) for key, entry in parameters.items()})
    try:
        target.write_text(
            yaml.safe_dump(described(arguments, fixed, parameters), sort_keys=False),
            encoding="utf-8",
        )
    except OSError as error:
        raise RequestError(f"out={target} cannot be written: {error.strerror}.") from error
    print(f"{target}: {extent(arguments, parameters)}")
    file = shlex.quote(str(target))
    print(f"here: python -m txlab agent {file}")
    print(f"on W&B: wandb sweep {file}, then the `wandb agent` line it prints")
    return 0


def extent(arguments: Arguments, parameters: Mapping[str, Mapping[str, Any]]) -> str:
    """How many runs there are."""
    if arguments.method is not Method.grid:
        most = arguments.run_cap
        return f"{most} runs" if most else "runs without end: agents take count=N"
    sizes = [len(entry["values"]) for entry in parameters.values()]
    product = f"{' x '.join(map(str, sizes))} = " if len(sizes) > 1 else ""
    said = f"{product}{math.prod(sizes)} runs"
    return said if arguments.run_cap is None else f"{said}, {arguments.run_cap} at most"


def separated(words: Sequence[str]) -> list[str]:
    """Words as a shell would split them: several may stand in one, within quotes."""
    try:
        return [part for word in words for part in shlex.split(word)]
    except ValueError as error:
        raise RequestError(f"sweep {' '.join(words)}: {error}.") from error


def split(words: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """The words with one value, and by key what W&B is told of those with several or a range."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from txlab.core.hydra import prepare, sweep_spaces
    from txlab.core.hydra.errors import translated

    if flags := [word for word in words if word.startswith("-")]:
        raise RequestError(f"sweep takes no flags, found {flags[0]}: several values make a sweep.")
    fixed: list[str] = []
    parameters: dict[str, dict[str, Any]] = {}
    with translated():
        for word in OverridesParser.create().parse_overrides(prepare(words, multirun=True)):
            if word.get_key_element() == "run_dir":
                raise RequestError("run_dir would be the same for all runs: leave it out.")
            if word.get_key_element().startswith("hydra"):
                raise RequestError(
                    f"{word.input_line} is for -m: the agents of a sweep file start single runs."
                )
            if not word.is_sweep_override():
                fixed.append(str(word.input_line))
                continue
            # `recipe` without its plus: the normaliser adds it again where the agent starts a run.
            parameters[word.get_key_element().lstrip("+")] = sweep_spaces.parameter(word)
    if not parameters:
        raise RequestError(
            "no key has several values: write them with commas, such as optim.lr=1e-3,3e-4."
        )
    return fixed, parameters


def examples(entry: Mapping[str, Any]) -> list[Any]:
    """All values of a parameter, or the ends of its range."""
    return list(entry["values"]) if "values" in entry else [entry["min"], entry["max"]]


def check(fixed: Sequence[str], parameters: Mapping[str, Sequence[Any]]) -> None:
    """Compose each value once beside the first ones of the others; RequestError as of a run."""
    from txlab.core.hydra import compose

    first = {key: values[0] for key, values in parameters.items()}
    for key, values in parameters.items():
        for value in values:
            chosen = {**first, key: value}
            compose([*fixed, *(f"{name}={one}" for name, one in chosen.items())])


def described(
    arguments: Arguments, fixed: Sequence[str], parameters: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The sweep as W&B reads it."""
    keys = [word.partition("=")[0] for word in fixed]
    tracked = [] if any(key == "logger" for key in keys) else ["logger=wandb"]
    sweep: dict[str, Any] = {
        "project": arguments.project,
        "program": "txlab",  # shown by W&B; what is run is the command
        "method": arguments.method.value,
        "metric": {"name": arguments.metric, "goal": arguments.goal.value},
    }
    if arguments.early_terminate is not None:
        sweep["early_terminate"] = {"type": "hyperband", "min_iter": arguments.early_terminate}
    if arguments.run_cap is not None:
        sweep["run_cap"] = arguments.run_cap
    return sweep | {
        "parameters": {key: dict(entry) for key, entry in parameters.items()},
        "command": ["${env}", "python", "-m", "txlab", *fixed, *tracked, "${args_no_hyphens}"],
    }
