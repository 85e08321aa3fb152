"""A run's pictures: the loss, and every column of the local log in small panels."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txlab.train.callbacks.log import FILE, read_rows
from txlab.train.history import Row
from txlab.train.module import TrainModule

PICTURE = "curves.png"
COUNTERS = ("step", "updates", "tokens")
ACROSS = 3


def pictures(run_dir: Path, module: TrainModule, facts: Mapping[str, Any]) -> list[Path]:
    """Draw `loss.png` and `curves.png`; none where there is no row yet, or none are wanted."""
    if not module.config.pictures:
        return []
    from txlab.train import report

    entropy = facts.get("unigram_entropy") if module.objective.item == "token" else None
    loss = report.picture(run_dir, entropy, item=module.objective.item)
    return [path for path in (loss, draw(run_dir)) if path is not None]


def draw(run_dir: Path) -> Path | None:
    """Draw the picture from `metrics.csv`; None where there is no row."""
    rows = read_rows(run_dir / FILE) if (run_dir / FILE).exists() else []
    found = panels(rows)
    if not found:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    down = math.ceil(len(found) / ACROSS)
    figure = Figure(figsize=(4 * ACROSS, 2.4 * down), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.subplots(down, ACROSS, squeeze=False, sharex=True)
    for axes, (title, columns) in zip(grid.flat, found.items(), strict=False):
        for column in columns:
            steps, values = points(rows, column)
            few = "." if len(steps) < 20 else None
            label = column.partition("/")[0] if len(columns) > 1 else None
            axes.plot(steps, values, linewidth=1, marker=few, label=label)
        axes.set_title(title if len(columns) > 1 else columns[0], fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        if len(columns) > 1:
            axes.legend(fontsize=7)
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    figure.supxlabel("step", fontsize=9)
    figure.suptitle(run_dir.name, fontsize=10)
    half = run_dir / f"{PICTURE}.tmp"
    figure.savefig(half, dpi=100, format="png")
    half.replace(run_dir / PICTURE)
    return run_dir / PICTURE


def panels(rows: list[Row]) -> dict[str, list[str]]:
    """Columns by panel: what is measured in training and held out shares one.

    Counters have none, nor has `skipped` where no step was.
    """
    found: dict[str, list[str]] = {}
    for column in dict.fromkeys(name for row in rows for name in row):
        if column in COUNTERS or not points(rows, column)[0]:
            continue
        if column == "skipped" and not any(row.get(column) for row in rows):
            continue
        found.setdefault(column.partition("/")[2] or column, []).append(column)
    return found


def points(rows: list[Row], column: str) -> tuple[list[float], list[float]]:
    """Steps and values of the rows in which the column has a finite value."""
    pairs = [(row["step"], row[column]) for row in rows if math.isfinite(row.get(column, math.nan))]
    return [step for step, _ in pairs], [value for _, value in pairs]
