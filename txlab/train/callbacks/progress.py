"""One line that says where the run is."""

import sys
import time
from typing import Any, TextIO

from lightning.pytorch import Callback, Trainer

from txlab.train.history import Row

SHARES = {"val/exact_match": "right", "val/accuracy": "preferred"}
"""Held-out figures between 0 and 1 that are shown where there are any."""


class Progress(Callback):
    """Rewrites one line on a terminal, prints lines elsewhere; only when there is a new row.

    A terminal gets a line for every row; a pipe or file at most one every `quiet` seconds, beside
    validations.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: float = 10.0) -> None:
        self.stream = stream
        self.quiet = quiet
        self._shown = float("-inf")
        self._width = 0

    def on_row(self, trainer: Trainer, module: Any, row: Row) -> None:
        if not trainer.is_global_zero:
            return
        out = self._out()
        last = row["step"] == module.total_steps
        if out.isatty():
            line = self._line(module, row, bar=True)
            out.write("\r" + line.ljust(self._width))
            self._width = len(line)
            if last or "val/loss" in row:
                self._break(out)
        elif last or "val/loss" in row or time.monotonic() - self._shown > self.quiet:
            self._shown = time.monotonic()
            out.write(self._line(module, row, bar=False) + "\n")
        out.flush()

    def on_note(self, trainer: Trainer, module: Any, text: str) -> None:
        if trainer.is_global_zero:
            self.say(text)

    def say(self, text: str) -> None:
        """Print one line of news, below whatever line is being rewritten."""
        out = self._out()
        self._break(out)
        out.write(text + "\n")
        out.flush()

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._break(self._out())

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._break(self._out())

    def _out(self) -> TextIO:
        return self.stream if self.stream is not None else sys.stdout

    def _break(self, out: TextIO) -> None:
        """End the line that is being rewritten, where there is one."""
        if self._width:
            out.write("\n")
            self._width = 0

    def _line(self, module: Any, row: Row, *, bar: bool) -> str:
        step, total = int(row["step"]), module.total_steps
        parts = [f"step {step:>{len(str(total))}}/{total}"]
        if bar:
            done = round(20 * step / max(total, 1))
            parts.insert(0, "[" + "#" * done + "-" * (20 - done) + "]")
        parts += [f"loss {row['train/loss']:.4f}"] if "train/loss" in row else []
        parts += [f"val {row['val/loss']:.4f}"] if "val/loss" in row else []
        parts += [f"{name} {100 * row[key]:.1f} %" for key, name in SHARES.items() if key in row]
        parts += [f"lr {row['lr']:.2e}", f"{row['tokens_per_s']:,.0f} tokens/s"]
        parts += [f"MFU {100 * row['mfu']:.1f} %"] if "mfu" in row else []
        rate = row["tokens"] and module.counters.seconds / max(module.counters.step, 1)
        left = round(rate * (total - step))
        parts += [f"{left // 60}:{left % 60:02d} left"] if step < total else []
        return "  ".join(parts)
