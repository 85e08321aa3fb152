"""The coordinate check: whether activations stay the same at every width while a model learns.

Yang et al. 2022, appendix D.1: under a right parametrisation the size of activations and logits
after a few updates does not depend on the width; under a wrong one it grows or falls as a power.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from txlab.core.errors import RequestError
from txlab.models import model_slot
from txlab.nn.init import GPT2Init
from txlab.train.optim import optim
from txlab.train.state import seeded

if TYPE_CHECKING:
    from txlab.schema import Config


@dataclass
class Arguments:
    """What to measure, beside the overrides of the config."""

    widths: str = "64,128,256"
    """Widths of the model, with commas."""
    steps: int = 4
    """Updates before activations are measured."""
    seeds: int = 3
    """Models and batches at each width, of which the mean is told."""
    out: str | None = None
    """Picture to draw, a .png file that does not exist yet."""

    def sizes(self) -> list[int]:
        """The widths, in order; RequestError for fewer than two."""
        words = self.widths.strip("[]").split(",")
        found = sorted({int(word) for word in words if word.strip().isdecimal()})
        if len(found) < 2 or len(found) != len(words) or found[0] < 1:
            raise RequestError(f"widths={self.widths}: expected two or more, as in 64,128,256.")
        for name, value in (("steps", self.steps), ("seeds", self.seeds)):
            if value < 1:
                raise RequestError(f"{name}={value}: expected at least 1.")
        return found


ROWS, LENGTH, VOCABULARY = 4, 16, 16
"""One batch of few tokens, learned again and again: updates that all point one way show what grows,
while those of many unlike tokens cancel out."""


def coordinates(
    config: "Config", widths: Sequence[int], *, steps: int, seeds: int
) -> dict[str, list[float]]:
    """Mean |activation| at each width after `steps` updates at the peak rate, mean over `seeds`.

    By what is measured: the output of every layer, and the logits. Models are widened by heads of
    the same size; RequestError for a width that this does not fit.
    """
    found: dict[str, list[float]] = {}
    for width in widths:
        runs = [_measured(_widened(config, width), steps=steps, seed=seed) for seed in range(seeds)]
        for name in runs[0]:
            found.setdefault(name, []).append(sum(run[name] for run in runs) / seeds)
    return found


def slope(widths: Sequence[int], values: Sequence[float]) -> float:
    """The power of the width that `values` follow: least squares on logarithms."""
    x = torch.tensor(widths, dtype=torch.float64).log()
    y = torch.tensor(values, dtype=torch.float64).clamp(min=1e-300).log()
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / x.square().sum())


def compared(config: "Config") -> dict[str, "Config"]:
    """The config, and beside maximal update parametrisation the standard one."""
    found = {f"model.init={config.model.init.name}, optim.scale={config.optim.scale}": config}
    if config.optim.scale == "mup":
        plain = GPT2Init.Config(std=getattr(config.model.init, "std", 0.02))
        found["standard: model.init=gpt2, optim.scale=none"] = replace(
            config,
            model=replace(config.model, init=plain),
            optim=replace(config.optim, scale=None),
        )
    return found


def table(widths: Sequence[int], found: Mapping[str, Sequence[float]]) -> list[str]:
    """Lines with the figures of every width, and the power that they follow."""
    lines = [" ".join([f"{'width':<12}", *(f"{width:>10}" for width in widths), "     slope"])]
    for name, values in found.items():
        cells = [f"{value:>10.4g}" for value in values]
        lines.append(" ".join([f"{name:<12}", *cells, f"{slope(widths, values):>+10.2f}"]))
    return lines


def draw(
    target: Path, widths: Sequence[int], panels: Mapping[str, Mapping[str, Sequence[float]]]
) -> None:
    """Draw one panel for each parametrisation, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, NullLocator

    figure = Figure(figsize=(5.5 * len(panels), 4), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axes, (title, found) in zip(grid.flat, panels.items(), strict=True):
        for name, values in found.items():
            label = f"{name} ({slope(widths, values):+.2f})"
            axes.loglog(widths, values, marker="o", linewidth=1.5, label=label)
        axes.set_xticks(list(widths), [str(width) for width in widths])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("width")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, title="slope", title_fontsize=8)
    grid[0, 0].set_ylabel("mean |activation|")
    try:
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise RequestError(f"out={target} cannot be written: {error.strerror}.") from error


def _widened(config: "Config", width: int) -> "Config":
    model = config.model
    head = model.head_dim or model.dim // model.n_heads
    if width % head:
        raise RequestError(
            f"widths: {width} is no multiple of {head}, the width of a head (model.head_dim); "
            "models are widened by more heads."
        )
    sizes: dict[str, Any] = {"dim": width, "n_heads": width // head, "init_from": None}
    sizes["vocab_size"] = model.vocab_size or VOCABULARY
    return replace(config, model=replace(model, **sizes))


def _measured(config: "Config", *, steps: int, seed: int) -> dict[str, float]:
    with seeded(seed):
        model: Any = model_slot.build(config.model, config.model.dims())
        ids = torch.randint(model.dims.vocab_size, (ROWS, min(LENGTH, model.dims.context) + 1))
        optimizer = optim.build(config.optim).make(model)
        seen: dict[str, Tensor] = {}
        for number, layer in enumerate(model.layers):
            layer.register_forward_hook(_keeper(seen, f"layers.{number}"))
        for step in range(steps + 1):
            seen["logits"] = logits = model.logits(model(ids[:, :-1]).states)
            if step < steps:
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
                optimizer.step()
    sizes = {name: float(value.detach().abs().mean()) for name, value in seen.items()}
    if not all(map(math.isfinite, sizes.values())):
        raise RequestError(
            f"at width {config.model.dim} activations are not finite after {steps} updates: "
            "lower optim.lr."
        )
    return sizes


def _keeper(seen: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, given: Any, made: Any) -> None:
        seen[name] = made[0] if isinstance(made, tuple) else made

    return keep
