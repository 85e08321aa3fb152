"""Running sums of a run's figures: kept on the device, read once a row."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from txlab.data.batch import IGNORE
from txlab.objectives.objective import Loss

Row = dict[str, float]
"""One row of the log, column by column."""


@dataclass
class Sums:
    """(sum, count) pairs by name, added up in float64 whatever the model computes in."""

    names: list[str] = field(default_factory=list)
    values: Tensor | None = None
    """Sum and count of each name, flat."""

    def add(self, pairs: dict[str, tuple[Tensor, Tensor]]) -> None:
        """Add one batch's pairs; no value is read, so the device is not waited for."""
        parts = [part.detach() for pair in pairs.values() for part in pair]
        # float32 counts no further than 16.7 million tokens; Apple's devices have nothing wider.
        exact = torch.float32 if parts[0].device.type == "mps" else torch.float64
        flat = torch.stack([part.to(exact) for part in parts])
        names = list(pairs)
        if self.values is None:
            self.names, self.values = names, flat
        elif names == self.names:
            self.values = self.values.to(flat.device) + flat
        else:  # a batch with other metrics: rare, so simple
            merged = dict(zip(self.names, self.values.view(-1, 2), strict=True))
            for name, pair in zip(names, flat.view(-1, 2), strict=True):
                merged[name] = merged[name] + pair if name in merged else pair
            self.names, self.values = list(merged), torch.cat(list(merged.values()))

    def totals(self) -> dict[str, tuple[float, float]]:
        """The pairs as numbers; waits for the device."""
        if self.values is None:
            return {}
        pairs = self.values.view(-1, 2).tolist()
        return {name: (pair[0], pair[1]) for name, pair in zip(self.names, pairs, strict=True)}

    def state(self) -> dict[str, Any]:
        return {"names": list(self.names), "values": self.values}


class Stopwatch:
    """Time spent in training steps; stands still while validating, saving and drawing samples."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def start(self) -> None:
        if self._since is None:
            self._since = time.perf_counter()

    def stop(self) -> None:
        self.seconds = self.read()
        self._since = None

    def read(self) -> float:
        """Seconds since the last lap, pauses left out."""
        return self.seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def lap(self) -> float:
        """Stop, and hand out the seconds; counts from 0 again."""
        self.stop()
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Window:
    """The steps since the last row of the log, as sums; saved, so a resumed log has no seam."""

    def __init__(self) -> None:
        self.sums = Sums()
        self.norms: list[float] = []
        self.lr = 0.0
        self.tokens = 0

    def row(self, prefix: str = "train/") -> Row:
        """Token-weighted means of the window's steps, mean gradient norm, last learning rate."""
        row = {
            prefix + name: total / count
            for name, (total, count) in self.sums.totals().items()
            if count
        }
        row["lr"] = self.lr
        finite = [norm for norm in self.norms if math.isfinite(norm)]
        if finite:
            row["grad_norm"] = sum(finite) / len(finite)
        return row

    def state(self) -> dict[str, Any]:
        plain = {key: getattr(self, key) for key in ("lr", "tokens")}
        return {**plain, "norms": list(self.norms), "sums": self.sums.state()}

    def load(self, state: dict[str, Any]) -> None:
        for key in ("lr", "tokens"):
            setattr(self, key, state[key])
        self.norms = list(state["norms"])
        self.sums = Sums(list(state["sums"]["names"]), state["sums"]["values"])


def held_out_pairs(
    loss: Loss, labels: Tensor, token_bytes: Tensor | None, source: str | None = None
) -> dict[str, tuple[Tensor, Tensor]]:
    """What one held-out batch adds to `Sums`; with `token_bytes` [v], also the targets' bytes.

    The loss of a batch of one source counts for this one, too.
    """
    pairs = {"loss": (loss.sum, loss.count), **loss.metrics}
    if source is not None:
        pairs[f"loss/{source}"] = pairs.get("nll", pairs["loss"])
    if token_bytes is not None:
        n_bytes = token_bytes[labels.clamp(min=0)].where(labels != IGNORE, 0).sum()
        pairs["bytes"] = (n_bytes, torch.ones_like(n_bytes))
    return pairs


def held_out_row(sums: Sums) -> Row:
    """Figures of a validation: token-weighted, so neither batch size nor devices matter.

    Where the objective reports the plain likelihood `nll` the loss is that one, and has a
    perplexity and bits per byte; other losses have neither.
    """
    totals = sums.totals()
    loss, count = totals.get("nll") or totals.get("loss") or (0.0, 0.0)
    if not count:
        return {}
    row = {"val/loss": loss / count}
    if "nll" in totals:
        row["val/perplexity"] = math.exp(min(loss / count, 700.0))
        n_bytes = totals.get("bytes", (0.0, 0.0))[0]
        if n_bytes:
            row["val/bits_per_byte"] = loss / math.log(2) / n_bytes
    others = {k: v for k, v in totals.items() if k not in ("nll", "loss", "bytes")}
    return row | {f"val/{name}": total / count for name, (total, count) in others.items() if count}
