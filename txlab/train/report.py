"""What a run says at its start and its end: facts, summary table, summary.json, loss.png."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlab.nn.adapter import adapter_of
from txlab.train import checkpoint
from txlab.train.callbacks.log import FILE as METRICS
from txlab.train.callbacks.log import read_rows
from txlab.train.folder import Place
from txlab.train.history import Row
from txlab.train.memory import peak_memory
from txlab.train.module import TrainModule
from txlab.train.state import parameter_count

if TYPE_CHECKING:
    from txlab.data.source import Data

SUMMARY, PICTURE = "summary.json", "loss.png"


def write_summary(run_dir: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json`."""
    (run_dir / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def table(summary: dict[str, Any]) -> None:
    """Print the summary of a finished run."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(show_header=False, title="summary", title_justify="left")
    for label, value in lines(summary):
        grid.add_row(label, value)
    Console(soft_wrap=True, highlight=False).print(grid)


def lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Labels and values of the summary, as text; what is not known is left out."""
    s = summary
    skipped = f" ({s['skipped']} skipped)" if s.get("skipped") else ""
    unit, metrics = f"nats a {s['item']}", s.get("metrics") or {}
    of_them = "of them" if s["item"] == "token" else f"{s['item']}s"
    rows: list[tuple[str, str | None]] = [
        ("steps", f"{s['step']:,}, {s['updates']:,} updates{skipped}"),
        ("stopped", s.get("stopped")),
        ("tokens", f"{s['tokens']:,}, {s['supervised']:,} {of_them} supervised"),
        ("parameters", f"{s['parameters']:,}"),
        ("train loss", _number(s, "train/loss", "{:.4f} {unit}", unit=unit)),
        ("held-out loss", _number(s, "val/loss", "{:.4f} {unit}", unit=unit)),
        (
            "unigram entropy",
            _number(s, "unigram_entropy", "{:.4f} nats a token, of the held-out text"),
        ),
        ("better by", _number(s, "gain", "{:.4f} nats a token")),
        ("bits per byte", _number(s, "val/bits_per_byte", "{:.4f}")),
        ("perplexity", _number(s, "val/perplexity", "{:.2f}")),
        *(
            (f"held-out {name.replace('_', ' ')}", f"{value:.4f}")
            for name, value in metrics.items()
        ),
        ("tokens/s", _number(s, "tokens_per_s", "{:,.0f}")),
        (
            "MFU",
            _number(
                s, "mfu", "{:.1%} of {peak}", peak=f"{s.get('peak_flops', 0) / 1e12:.2f} TFLOP/s"
            ),
        ),
        ("training time", _number(s, "seconds", "{:.1f} s")),
        ("peak memory", _number(s, "peak_memory_mib", "{:,.0f} MiB")),
        ("best kept", s.get("best")),
        ("run folder", str(s["run_dir"])),
    ]
    return [(label, text) for label, text in rows if text is not None]


def _number(summary: dict[str, Any], key: str, form: str, **extra: str) -> str | None:
    value = summary.get(key)
    return None if value is None else form.format(value, **extra)


def picture(run_dir: Path, entropy: float | None = None, *, item: str = "token") -> Path | None:
    """Draw `loss.png` from `metrics.csv`: training and held-out loss by step."""
    rows = read_rows(run_dir / METRICS) if (run_dir / METRICS).exists() else []
    if not rows:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(*_points(rows, "train/loss"), label="train", linewidth=1)
    axes.plot(*_points(rows, "val/loss"), label="held out", marker="o")
    if entropy is not None:
        axes.axhline(entropy, label="unigram entropy", color="grey", linestyle=":")
    axes.set(xlabel="step", ylabel=f"loss (nats a {item})", title=run_dir.name)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(run_dir / PICTURE, dpi=120)
    return run_dir / PICTURE


def _points(rows: list[Row], column: str) -> tuple[list[float], list[float]]:
    found = [(row["step"], row[column]) for row in rows if column in row]
    return [step for step, _ in found], [value for _, value in found]


def introduction(
    place: Place,
    module: TrainModule,
    data: "Data",
    where: str,
    notes: Sequence[str] = (),
) -> list[str]:
    """What is about to happen, in a few lines; `where`: `devices.described`."""
    facts, size = data.facts, float(data.step_rows)
    rows, tokens = round(size * data.train.lines), size * data.row_tokens
    full = tokens == rows * data.context
    each = f"x {data.context} = {tokens:,.0f}" if full else f"rows, about {tokens:,.0f}"
    start, total = module.counters.step, module.total_steps
    epochs = _epochs(total * size / len(data.train))
    known = ("source", "documents", "train_tokens", "train_unknown", "val_tokens", "vocab_size")
    known += ("tokenizer_sampled", "sha256")
    said = [f"{key} {_plain(facts[key])}" for key in known if key in facts]
    mixed = f", {module.flops_per_token / 1e6:.1f} MFLOP a token" if module.flops_per_token else ""
    lines = [
        f"run folder  {place.path}",
        f"data        {', '.join(said)}",
        f"model       {parameter_count(module.model):,} parameters{mixed}",
        f"devices     {where}",
        f"plan        {total:,} steps of {rows} {each} tokens: {epochs}",
    ]
    adapter = adapter_of(module.model)
    if adapter is not None:
        lines.insert(3, f"adapter     {adapter.describe(module.model)}")
    if left_out := _dropped(facts):
        lines.insert(2, f"dropped     {left_out}")
    lines += [f"note        {note}" for note in notes]
    if place.resumed is not None:
        done = " (nothing left to do)" if start >= total else ""
        lines.append(
            f"resumed     {place.resumed.path.name}: {start:,} of {total:,} steps are done{done}"
        )
    return lines


def _epochs(number: float) -> str:
    text = f"{number:.3g}"
    return f"{text} epoch{'s' * (text != '1')}"


def summarise(run_dir: Path, module: TrainModule, facts: dict[str, Any]) -> dict[str, Any]:
    """The figures of a finished run."""
    counters, row = module.counters, module.last_row
    entropy = facts.get("unigram_entropy") if module.objective.item == "token" else None
    speed = counters.tokens / counters.seconds if counters.seconds else None
    likely = "val/perplexity" in row
    gain = entropy - row["val/loss"] if entropy is not None and likely else None
    shown = ("val/loss", "val/perplexity", "val/bits_per_byte")
    others = {
        key.removeprefix("val/"): value
        for key, value in row.items()
        if key.startswith("val/") and key not in shown
    }
    mfu = (
        speed * module.flops_per_token / module.peak_flops if speed and module.peak_flops else None
    )
    return {
        "step": counters.step,
        "updates": counters.updates,
        "stopped": module.stopped,
        "skipped": counters.skipped + counters.empty,
        "tokens": counters.tokens,
        "supervised": counters.supervised,
        "parameters": parameter_count(module.model),
        "train/loss": row.get("train/loss"),
        "item": module.objective.item,
        "val/loss": row.get("val/loss"),
        "metrics": others,
        "unigram_entropy": entropy,
        "gain": gain,
        "val/bits_per_byte": row.get("val/bits_per_byte"),
        "val/perplexity": row.get("val/perplexity"),
        "tokens_per_s": speed,
        "mfu": mfu,
        "peak_flops": module.peak_flops,
        "flops_per_token": module.flops_per_token,
        "seconds": counters.seconds,
        "peak_memory_mib": peak_memory(module.device),
        "best": best_kept(run_dir) if module.config.keep_best else None,
        "run_dir": str(run_dir),
        "data": facts,
    }


def best_kept(run_dir: Path) -> str | None:
    """Name and figure of a run's best checkpoint; None where no validated one is there."""
    found = checkpoint.best_first(checkpoint.complete(run_dir / checkpoint.FOLDER))
    score = found[0].score if found else None
    return None if score is None else f"{found[0].path.name}, {score.key} {score.value:.4f}"


def remarks(module: TrainModule) -> list[str]:
    """What somebody may not have meant: a warm-up or an end that the run never comes to."""
    warmup, total = module.update.schedule.warmup, module.total_steps
    found = []
    if warmup > total:
        found.append(
            f"schedule.warmup is {warmup:,} updates long: in {total:,} steps the learning rate "
            f"comes to {total / warmup:.0%} of its peak"
        )
    stop_at, start = module.config.stop_at or total, module.counters.step
    if stop_at > total:
        found.append(f"train.stop_at={stop_at}: the run ends at {total:,} already")
    elif stop_at < total:
        what = "this part ends there, saved" if start < stop_at else "that part is done"
        found.append(f"train.stop_at={stop_at}: {what}; resume=auto without it goes on")
    return found


def _dropped(facts: dict[str, Any]) -> str:
    """How many items were left out and why; empty where none was."""
    counts = {k.removeprefix("dropped_"): n for k, n in facts.items() if k.startswith("dropped_")}
    said = [f"{n:,} {reason.replace('_', ' ')}" for reason, n in counts.items()]
    of = f"; of {facts['items']:,} items" if "items" in facts else ""
    return ", ".join(said) + of if said else ""


def _plain(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)
