"""Where two runs part: their losses and weights step by step, against a tolerance."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROWS, APART = "rows.jsonl", "apart.jsonl"
"""Files of a trace: figures of each step; tensors that differ from another trace's."""
LOSS_SHARE = 0.1
"""Losses are sums, which round less than weights: they have this share of the tolerance."""


@dataclass(frozen=True)
class Tensors:
    """How one tensor of B differs from A's of the same step."""

    largest: float
    """Largest absolute difference of two elements; inf where one is not a number."""
    scale: float
    """Largest absolute value in A's."""
    moved: float
    """Largest absolute difference between A's and that of A's start."""
    elements: int
    """Elements that differ."""
    beyond_it: int
    """Elements that differ by more than the tolerance."""
    of: int
    """All elements."""

    @property
    def relative(self) -> float:
        return self.largest / self.scale if self.scale else math.inf if self.largest else 0.0

    def beyond(self, tolerance: float) -> bool:
        """With tolerance 0: not the same to the bit."""
        return self.largest > tolerance * self.scale or tolerance == 0


@dataclass
class Step:
    """One step of both runs."""

    number: int
    figures: tuple[dict[str, float], dict[str, float]]
    """What the logs of A and B say of it; empty at the start."""
    apart: dict[str, Tensors] | None = None
    """Tensors that differ, by name; None where the weights of the step were not kept."""
    tensors: int = 0
    """Tensors that were compared."""
    resumed: bool = False
    """Whether this is B as it goes on from a checkpoint."""

    @property
    def losses(self) -> tuple[float | None, float | None]:
        return self.figures[0].get("train/loss"), self.figures[1].get("train/loss")

    @property
    def loss_apart(self) -> float:
        """Difference of the losses; inf where only one is there or a number."""
        return _apart(*self.losses)

    def loss_beyond(self, tolerance: float) -> bool:
        ours = self.losses[0]
        size = abs(ours) if ours is not None and math.isfinite(ours) else 0.0
        return self.loss_apart > LOSS_SHARE * tolerance * size

    def beyond(self, tolerance: float) -> dict[str, Tensors]:
        """Tensors that differ by more, the worst first."""
        found = {n: t for n, t in (self.apart or {}).items() if t.beyond(tolerance)}
        return dict(sorted(found.items(), key=lambda pair: -pair[1].relative))

    def differs(self, tolerance: float) -> bool:
        return self.loss_beyond(tolerance) or bool(self.beyond(tolerance))


@dataclass
class Comparison:
    """Two runs, step by step."""

    steps: list[Step]
    tolerance: float
    lengths: tuple[int, int]
    """Steps that A and B have made."""
    notes: list[str] = field(default_factory=list)

    @property
    def first(self) -> Step | None:
        """The first step at which they differ by more than the tolerance."""
        return next((step for step in self.steps if step.differs(self.tolerance)), None)

    @property
    def equal(self) -> bool:
        return self.first is None and self.lengths[0] == self.lengths[1]

    @property
    def ends_equal(self) -> bool:
        """Whether the last weights and the last loss are within the tolerance."""
        compared = [step for step in self.steps if step.apart is not None]
        return not any(step.differs(self.tolerance) for step in (self.steps[-1], compared[-1]))

    @property
    def worst(self) -> tuple[Step, str, Tensors] | None:
        """Step, name and figures of the largest relative difference of a tensor; None: all same."""
        found = [(s, name, t) for s in self.steps for name, t in (s.apart or {}).items()]
        return max(found, key=lambda one: one[2].relative, default=None)

    @property
    def worst_loss(self) -> Step:
        """The step with the largest difference of losses."""
        return max(self.steps, key=lambda step: step.loss_apart)


def apart(
    ours: Tensor, theirs: Tensor, start: Tensor, tolerance: float = 0.0
) -> dict[str, float] | None:
    """Fields of `Tensors` for A's tensor, B's, and A's at the start; None: same to the bit."""
    if ours.dtype == theirs.dtype and torch.equal(_bits(ours), _bits(theirs)):
        return None
    a, b, before = (t.to(torch.float64) for t in (ours, theirs, start))
    gaps = (a - b).abs().nan_to_num(nan=math.inf)
    gaps = gaps.where(~(a.isnan() & b.isnan()), 0.0).where(a != b, 0.0)
    return {
        "largest": gaps.max().item(),
        "scale": (scale := _largest(a)),
        "moved": _largest(a - before),
        "elements": int((a != b).sum()),
        "beyond_it": int((gaps > tolerance * scale).sum()),
        "of": a.numel(),
    }


def compare(a: Path, b: Path, tolerance: float) -> Comparison:
    """Read the traces in two folders; B's is one against A's."""
    rows = [{int(row["step"]): row for row in _read(folder / ROWS)} for folder in (a, b)]
    steps: list[Step] = []
    seen: set[int] = set()
    entries = _read(b / APART)
    kept = {entry["step"] for entry in entries}
    entries += [{"step": n} for n in rows[0].keys() & rows[1].keys() if n not in kept]
    for entry in sorted(entries, key=lambda entry: entry["step"]):
        number = entry["step"]
        again = number in seen
        seen.add(number)
        figures = ({}, {}) if again else (rows[0].get(number, {}), rows[1].get(number, {}))
        found = entry.get("apart")
        tensors = None if found is None else {n: Tensors(**fields) for n, fields in found.items()}
        steps.append(Step(number, figures, tensors, entry.get("tensors", 0), again))
    return Comparison(steps, tolerance, (max(rows[0], default=0), max(rows[1], default=0)))


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _largest(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _apart(a: float | None, b: float | None) -> float:
    if a is None and b is None:
        return 0.0
    if a is None or b is None:
        return math.inf
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if math.isfinite(a - b) else math.inf


def shown(steps: Sequence[Step], first: Step | None, most: int = 14) -> list[Step | None]:
    """Steps for a table of at most `most` rows, where the runs part in its middle; None: a gap."""
    if len(steps) <= most:
        return list(steps)
    at = steps.index(first) if first is not None else len(steps) // 2
    near = set(range(max(at - 3, 0), min(at + 5, len(steps))))
    wanted = sorted({0, 1, 2, len(steps) - 2, len(steps) - 1} | near)
    found: list[Step | None] = []
    for i, number in enumerate(wanted):
        if i and number != wanted[i - 1] + 1:
            found.append(None)
        found.append(steps[number])
    return found
