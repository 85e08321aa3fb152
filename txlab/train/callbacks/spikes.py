"""Steps whose loss leaps: told at once, with the rows that they were made of."""

import json
import statistics
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from txlab.core.errors import RequestError, RunError
from txlab.data.source import shown
from txlab.train.rows import step_loss

FILE = "spikes.jsonl"
ENOUGH = 10
"""Losses from which on there is something to compare with."""
SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, of normally distributed numbers."""


class Spikes(Callback):
    """Notes a step whose loss is more than `deviations` above the median of the `window` before.

    A deviation is 1.4826 times the median absolute deviation, at least 0.1 % of the median: one
    spike does not widen it as it would a standard deviation. The step is told, and appended to
    `spikes.jsonl` with the numbers of its rows and how they begin. Nothing else happens to it.
    """

    def __init__(
        self, run_dir: Path | str, *, deviations: float = 8.0, window: int = 100, chars: int = 80
    ) -> None:
        if deviations <= 0 or window < ENOUGH:
            raise RequestError(
                f"callbacks.spikes: deviations={deviations} must be above 0 and window={window} at "
                f"least {ENOUGH}."
            )
        self.file = Path(run_dir) / FILE
        self.deviations, self.chars = deviations, chars
        self.losses: deque[float] = deque(maxlen=window)

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if not trainer.is_global_zero or not self.file.exists():
            return
        step = pl_module.counters.step
        kept = [one for one in read_spikes(self.file) if one["step"] <= step]
        self.file.write_text("".join(map(_line, kept)), encoding="utf-8")

    def on_step(self, trainer: Trainer, module: Any) -> None:
        loss = step_loss(module)
        if loss is None:
            return
        above = leap(loss, self.losses)
        self.losses.append(loss)
        if above <= self.deviations or not trainer.is_global_zero:
            return
        step = module.counters.step
        entry = {"step": step, "loss": loss, "deviations": above}
        source: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
        if source is not None:
            batches, number = source.data.step_batches(), 0 if source.one_batch else step - 1
            entry["rows"] = [row for part in batches.indices(number) for row in part]
            ids = [row for batch in batches.at(number) for row in batch["tokens"].tolist()]
            entry["begin"] = [shown(source.data.tokenizer, row)[: self.chars] for row in ids]
        try:
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(_line(entry))
        except OSError as error:
            raise RunError(
                f"{self.file} cannot be written ({error.strerror}): make room."
            ) from error
        usual = statistics.median(list(self.losses)[:-1])
        module.tell(
            "on_note",
            f"spike       step {step}: loss {loss:.4f}, {above:.1f} deviations above the usual "
            f"{usual:.4f}; its rows are in {FILE}",
        )

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.losses.extend(state_dict["losses"])


def leap(loss: float, before: Sequence[float]) -> float:
    """Robust deviations by which `loss` is above the median of those before; 0 with too few."""
    if len(before) < ENOUGH:
        return 0.0
    middle = statistics.median(before)
    spread = SIGMA * statistics.median(abs(value - middle) for value in before)
    return (loss - middle) / max(spread, 1e-3 * abs(middle), 1e-12)


def read_spikes(file: Path) -> list[dict[str, Any]]:
    """Entries of a `spikes.jsonl`; a last line that a killed process left torn is dropped."""
    *whole, _ = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in whole]


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"
