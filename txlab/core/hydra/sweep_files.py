"""What stands in the folder of a sweep when it has ended: sweep.csv, and sweep.png to look at."""

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TABLE, PICTURE, METRICS = "sweep.csv", "sweep.png", "metrics.csv"
LOSS = "val/loss"
_MOST_CURVES = 20
"""More than these in one picture cannot be told apart."""

Outcome = dict[str, Any]
Points = list[tuple[int, float]]


_PLACES = ("run_dir", "resume", "logger", "sweep.metric", "sweep.goal")
"""Keys that no result depends on; an arm may have been started with others."""


def choices_of(outcome: Outcome) -> dict[str, str]:
    """A run's overrides by key, numbers in one spelling."""
    words = (word.split("=", 1) for word in outcome["overrides"] if "=" in word)
    return {key: _spelled(value) for key, value in words if key not in _PLACES}


def results_of(outcome: Outcome) -> dict[str, Any]:
    """A run's figures; none where it failed."""
    found = outcome["result"] if isinstance(outcome["result"], dict) else {}
    return {**found, **{f"val/{k}": v for k, v in (found.get("metrics") or {}).items()}}


def varied(outcomes: Sequence[Outcome]) -> list[str]:
    """Keys in which the runs differ."""
    choices = [choices_of(outcome) for outcome in outcomes]
    keys = list(dict.fromkeys(key for choice in choices for key in choice))
    return [key for key in keys if len({choice.get(key) for choice in choices}) > 1]


def write_table(folder: Path, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Write `sweep.csv`: a row a run, with its exit status, all it chose and every figure."""
    found = [
        {key: value for key, value in results_of(outcome).items() if _is_cell(value)}
        for outcome in outcomes
    ]
    figures = list(dict.fromkeys(key for row in found for key in row))
    keys = list(dict.fromkeys(key for outcome in outcomes for key in choices_of(outcome)))
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["run", "status", *keys, *figures, "error"], restval="")
        writer.writeheader()
        for name, outcome, row in zip(names, outcomes, found, strict=True):
            error = {} if isinstance(outcome["result"], dict) else {"error": outcome["result"]}
            status = {"run": name, "status": outcome["status"]}  # none while it is in work
            writer.writerow({**status, **choices_of(outcome), **row, **error})


def draw(folder: Path, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Draw `sweep.png`: each run's held-out loss by step, and where it ended; none, no picture.

    Runs that differ by their seed alone share a colour, and a line of the right half.
    """
    keys = varied(outcomes)
    shown: dict[str, list[Points]] = {}
    for name, outcome in zip(names, outcomes, strict=True):
        points = curve(folder / name / METRICS)
        if points and outcome["status"] == 0:
            choice = choices_of(outcome)
            words = [f"{key}={choice[key]}" for key in keys if key in choice and key != "seed"]
            alone = f"seed={choice['seed']}" if keys == ["seed"] and "seed" in choice else name
            shown.setdefault(" ".join(words) or alone, []).append(points)
    if not shown:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = max(4.5, 1.5 + 0.28 * len(shown))
    figure = Figure(figsize=(13, height), layout="constrained")
    FigureCanvasAgg(figure)
    curves, ends = figure.subplots(1, 2)
    for number, (label, runs) in enumerate(list(shown.items())[:_MOST_CURVES]):
        for place, points in enumerate(runs):
            steps, losses = zip(*points, strict=True)
            said = label if place == 0 else None
            curves.plot(steps, losses, marker=".", color=f"C{number}", label=said)
    curves.set(xlabel="step", ylabel="held-out loss", title=folder.name)
    last = {label: [points[-1][1] for points in runs] for label, runs in shown.items()}
    ranked = sorted(enumerate(last.items()), key=lambda entry: -statistics.fmean(entry[1][1]))
    for place, (number, (_, losses)) in enumerate(ranked):
        ends.plot(losses, [place] * len(losses), "o", color=f"C{number}", alpha=0.6)
        if len(losses) > 1:
            mean, spread = statistics.fmean(losses), statistics.stdev(losses)
            ends.errorbar(mean, place, xerr=spread, fmt="|", color="black", capsize=4)
    ends.set_yticks(range(len(ranked)), [label for _, (label, _) in ranked])
    several = any(len(losses) > 1 for losses in last.values())
    seeds = ", mean ± deviation over seeds" if several else ""
    ends.set(xlabel="held-out loss at the end", title=f"the best on top{seeds}")
    for axes in (curves, ends):
        axes.grid(alpha=0.3)
    figure.savefig(folder / PICTURE, dpi=110)


def curve(file: Path, figure: str = LOSS) -> Points:
    """(step, value) of a figure in a `metrics.csv`; empty where it has none."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row.get(figure)]
    return [(int(row["step"]), float(row[figure])) for row in rows]


def _spelled(value: str) -> str:
    for kind in (int, float):
        try:
            return repr(kind(value))
        except ValueError:
            continue
    return value


def _is_cell(value: Any) -> bool:
    return isinstance(value, (str, int, float)) or value is None
