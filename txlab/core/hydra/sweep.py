"""The end of a sweep: tables, files and picture over all its runs, whatever launched them."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from txlab.core.hydra import arms, sweep_files, sweep_seeds
from txlab.core.hydra.sweep_files import Outcome

_COLUMNS = ("train/loss", "val/loss", "val/bits_per_byte", "val/perplexity", "tokens_per_s", "mfu")
_HYDRAS = ("multirun.yaml",)
begun: "Begun | None" = None
"""The sweep that this process has started, if any."""


@dataclass(frozen=True)
class Begun:
    """A sweep's folder, and by what its runs are compared."""

    folder: Path
    metric: str = "val/loss"
    maximize: bool = False


class Remembered(Callback):
    """Keeps what the end of a sweep needs to know; configured in conf/config.yaml."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        global begun
        goal = getattr(config.sweep.goal, "name", config.sweep.goal)
        folder = Path(OmegaConf.select(config, "hydra.sweep.dir"))
        begun = Begun(folder, config.sweep.metric, goal == "maximize")


def conclude(sweep: Begun) -> int:
    """Print the tables and write the files; the highest exit status of the runs."""
    found = arms.ended(sweep.folder)
    if not found:
        _remove_empty(sweep.folder)
        return 0
    names = [folder.relative_to(sweep.folder).as_posix() for folder, _ in found]
    outcomes = [outcome for _, outcome in found]
    print_table(names, outcomes, sweep)
    sweep_files.write_table(sweep.folder, names, outcomes)
    sweep_seeds.write(sweep.folder, outcomes)
    sweep_files.draw(sweep.folder, names, outcomes)
    print(f"runs: {sweep.folder}")
    return max(outcome["status"] or 0 for outcome in outcomes)


def print_table(names: Sequence[str], outcomes: Sequence[Outcome], sweep: Begun) -> None:
    """A row a run: what varied between the runs, then what came of each; then over seeds."""
    choices = [sweep_files.choices_of(outcome) for outcome in outcomes]
    varied = sweep_files.varied(outcomes)
    results = [sweep_files.results_of(outcome) for outcome in outcomes]
    wanted = dict.fromkeys([*_COLUMNS, sweep.metric])
    figures = [name for name in wanted if any(name in result for result in results)]
    rows = []
    for name, choice, result, outcome in zip(names, choices, results, outcomes, strict=True):
        cells = [figure_text(result.get(figure)) for figure in figures]
        if word := _state(outcome):
            cells = [word] + [""] * (len(figures) - 1) if figures else []
        rows.append([name, *(_short(choice.get(key, "")) for key in varied), *cells])
    _print(
        "1 run" if len(outcomes) == 1 else f"{len(outcomes)} runs", ["run", *varied], figures, rows
    )
    groups = sweep_seeds.groups(outcomes)
    if groups:
        keys = [key for key in varied if key != sweep_seeds.SEED]
        rows = [
            [
                *(_short(group.choices.get(key, "")) for key in keys),
                str(group.n),
                *(sweep_seeds.spread_text(group, name, figure_text) for name in figures),
            ]
            for group in groups
        ]
        _print("over seeds: mean ± standard deviation", [*keys, "n"], figures, rows)
    if (best := best_of(outcomes, sweep)) is not None:
        said = " ".join(f"{k}={_short(choices[best][k])}" for k in varied if k in choices[best])
        value = figure_text(results[best][sweep.metric])
        print(f"best: run {names[best]}, {sweep.metric} {value}{said and f' ({said})'}")
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome["status"]:
            print(f"run {name} failed: {outcome['result']}")


def best_of(outcomes: Sequence[Outcome], sweep: Begun) -> int | None:
    """Place of the run with the best figure, of those that are done; None where there is none."""
    sign = -1 if sweep.maximize else 1
    found = [
        (sign * value, place)
        for place, outcome in enumerate(outcomes)
        if outcome["status"] == 0
        and isinstance(value := sweep_files.results_of(outcome).get(sweep.metric), (int, float))
        and math.isfinite(value)
    ]
    return min(found)[1] if len(found) > 1 else None


def figure_text(value: Any) -> str:
    """A figure for the table."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _short(value: str) -> str:
    """A searched value to four digits; sweep.csv has all of them."""
    try:
        return f"{float(value):.4g}" if len(value) > 8 else value
    except ValueError:
        return value


def _state(outcome: Outcome) -> str:
    if outcome["status"] is None:
        return "in work"
    if outcome["status"] == arms.PREEMPTED:
        return "stopped"
    return "failed" if outcome["status"] else ""


def _print(
    title: str, left: Sequence[str], right: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    widths = (
        max(len(text) for text in column) for column in zip([*left, *right], *rows, strict=True)
    )
    # A wide table is better than one cut short.
    console.width = max(console.width, sum(width + 3 for width in widths) + 1)
    console.print(table)


def _remove_empty(folder: Path) -> None:
    """A sweep that was refused leaves nothing."""
    with contextlib.suppress(OSError):
        if {entry.name for entry in folder.iterdir()} <= set(_HYDRAS):
            for name in _HYDRAS:
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
            if folder.parent.name == "runs":
                folder.parent.rmdir()
