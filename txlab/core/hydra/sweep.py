"""The end of a sweep: table, sweep.csv and sweep.png over all its runs, whatever launched them."""

import json
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from txlab.core.hydra import sweep_files

OUTCOME = "outcome.json"
_COLUMNS = ("train/loss", "val/loss", "val/bits_per_byte", "val/perplexity", "tokens_per_s", "mfu")
worst_status = 0
"""Highest exit status of the last sweep's runs."""


def record(folder: Path, overrides: list[str], status: int, result: dict[str, Any] | str) -> None:
    """Leave what a run of a sweep came to in its folder: its results, or its error in one line."""
    outcome = {"overrides": overrides, "status": status, "result": result}
    (folder / OUTCOME).write_text(json.dumps(outcome, default=str, indent=1), encoding="utf-8")


class Table(Callback):
    """Prints the table and writes the files when a sweep ends; configured in conf/config.yaml."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        global worst_status
        folder = Path(OmegaConf.select(config, "hydra.sweep.dir"))
        files = sorted(
            folder.glob(f"*/{OUTCOME}"), key=lambda f: (len(f.parent.name), f.parent.name)
        )
        outcomes = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        worst_status = max((outcome["status"] for outcome in outcomes), default=0)
        if outcomes:
            print_table([file.parent.name for file in files], outcomes)
            names = [file.parent.name for file in files]
            sweep_files.write_table(folder, names, outcomes)
            sweep_files.draw(folder, names, outcomes)
            print(f"runs: {folder}")


def print_table(names: list[str], outcomes: list[dict[str, Any]]) -> None:
    """A row a run: what varied between the runs, then what came of each."""
    from rich.console import Console
    from rich.table import Table as RichTable

    choices = [sweep_files.choices_of(outcome) for outcome in outcomes]
    varied = sweep_files.varied(outcomes)
    results = [sweep_files.results_of(outcome) for outcome in outcomes]
    figures = [name for name in _COLUMNS if any(name in result for result in results)]
    table = RichTable(title=f"{len(outcomes)} runs", title_justify="left")
    for heading in ("run", *varied, *figures):
        right = heading in figures
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for name, choice, result, outcome in zip(names, choices, results, outcomes, strict=True):
        cells = [_figure(result.get(figure)) for figure in figures]
        if outcome["status"]:
            cells = ["failed"] + [""] * (len(figures) - 1) if figures else []
        table.add_row(name, *(choice.get(key, "") for key in varied), *cells)
    width = sum(len(str(column.header)) + 12 for column in table.columns)
    console = Console()
    console.width = max(console.width, width)  # a wide table is better than one cut short
    console.print(table)
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome["status"]:
            print(f"run {name} failed: {outcome['result']}")


def _figure(value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
