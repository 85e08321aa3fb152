"""Text generated along the way."""

import re
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from txlab.core.files import append, rewrite
from txlab.data.tokenizer import Tokenizer
from txlab.models.sampling import Sampling
from txlab.models.text import generate_text
from txlab.train.history import Row
from txlab.train.state import random_kept
from txlab.train.strategy.peers import sharded

FILE = "samples.txt"
HEAD = re.compile(r"^--- step (\d+)$", re.MULTILINE)


class Samples(Callback):
    """Appends what the model makes of `prompt` to `samples.txt` at every validation.

    Training's random numbers are untouched by it.
    """

    def __init__(
        self,
        run_dir: Path,
        tokenizer: Tokenizer,
        prompt: str,
        sampling: Sampling,
        *,
        resumed_step: int = 0,
    ) -> None:
        self.file = run_dir / FILE
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.sampling = sampling
        self.resumed_step = resumed_step

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if not trainer.is_global_zero or not self.file.exists():
            return
        kept = [one for one in read_samples(self.file) if one[0] <= self.resumed_step]
        rewrite(self.file, "".join(_entry(*one) for one in kept))

    def on_row(self, trainer: Trainer, module: Any, row: Row) -> None:
        if "val/loss" not in row or not (trainer.is_global_zero or sharded(trainer)):
            return
        # Decoding meets a new length at each token: compiled blocks would be compiled for each.
        with random_kept(), torch.compiler.set_stance("force_eager"):
            (answer,) = generate_text(module.model, self.tokenizer, [self.prompt], self.sampling)
        if not trainer.is_global_zero:
            return
        append(self.file, _entry(int(row["step"]), self.prompt + answer.text))


def read_samples(file: Path) -> list[tuple[int, str]]:
    """Samples in a `samples.txt` with their steps."""
    _, *parts = HEAD.split(file.read_text(encoding="utf-8"))
    return [
        (int(step), text.strip("\n")) for step, text in zip(parts[::2], parts[1::2], strict=True)
    ]


def _entry(step: int, text: str) -> str:
    return f"--- step {step}\n{text}\n\n"
