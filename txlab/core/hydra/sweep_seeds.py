"""Runs of a sweep that differ by their seed alone: the mean of each figure, and its spread."""

import csv
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlab.core.hydra.sweep_files import Outcome, choices_of, results_of

SEED, TABLE = "seed", "seeds.csv"
_COSTS = ("tokens_per_s", "mfu", "seconds")


@dataclass(frozen=True)
class Group:
    """What the runs share, how many are done, and their figures."""

    choices: dict[str, str]
    n: int
    figures: dict[str, list[float]]

    def spread(self, name: str) -> tuple[float, float | None] | None:
        """Mean and sample standard deviation (None of one run); None without the figure."""
        values = self.figures.get(name)
        if not values:
            return None
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return statistics.fmean(values), deviation


def groups(outcomes: Sequence[Outcome]) -> list[Group]:
    """Runs that are done, grouped by all but their seed; empty where no two share a group."""
    shared: dict[tuple[tuple[str, str], ...], list[Outcome]] = {}
    for outcome in outcomes:
        choices = choices_of(outcome)
        rest = tuple(sorted((k, v) for k, v in choices.items() if k != SEED))
        if outcome["status"] == 0 and SEED in choices:
            shared.setdefault(rest, []).append(outcome)
    if not any(len(runs) > 1 for runs in shared.values()):
        return []
    return [Group(dict(rest), len(runs), _figures(runs)) for rest, runs in shared.items()]


def spread_text(group: Group, name: str, text: Callable[[float], str]) -> str:
    """`2.31 ± 0.02` for the table."""
    spread = group.spread(name)
    if spread is None:
        return ""
    mean, deviation = spread
    if deviation is None:
        return text(mean)
    return f"{text(mean)} ± {deviation:,.0f}" if mean >= 1000 else f"{text(mean)} ± {deviation:.2g}"


def write(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write `seeds.csv`: a row a group; none where there is no group."""
    found = groups(outcomes)
    (folder / TABLE).unlink(missing_ok=True)  # of an earlier end of this sweep
    if not found:
        return
    keys = list(dict.fromkeys(key for group in found for key in group.choices))
    names = list(dict.fromkeys(name for group in found for name in group.figures))
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as stream:
        columns = [column for name in names for column in (f"{name} mean", f"{name} std")]
        writer = csv.DictWriter(stream, [*keys, "n", *columns], restval="")
        writer.writeheader()
        for group in found:
            row: dict[str, Any] = {**group.choices, "n": group.n}
            for name in names:
                row[f"{name} mean"], row[f"{name} std"] = group.spread(name) or ("", "")
            writer.writerow(row)


def _figures(runs: Sequence[Outcome]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, value in results_of(run).items():
            told = name.startswith(("train/", "val/")) or name in _COSTS
            if told and isinstance(value, (int, float)):
                found.setdefault(name, []).append(float(value))
    return found
