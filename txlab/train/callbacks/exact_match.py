"""Held-out items answered along the way: the share of right answers, and what they look like."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from txlab.core.files import append, rewrite
from txlab.data.source import Data
from txlab.models.answers import Answered, limit, solve
from txlab.train.state import random_kept
from txlab.train.strategy.peers import sharded

FILE = "answers.jsonl"
METRIC = "exact_match"
WRITTEN = 32
"""Answers of a validation that are written down."""


class ExactMatch(Callback):
    """Has the model answer what `data` asks, greedily, at every validation.

    The share of right answers joins the held-out figures as `val/exact_match`, where `data` marks
    them; ranks take consecutive shares of the items. The first answers are appended to
    `answers.jsonl`. Training's random numbers are untouched by it.
    """

    def __init__(self, run_dir: Path, data: Data, *, resumed_step: int = 0) -> None:
        self.file = run_dir / FILE
        self.problems = data.asked()
        self.limit = limit(self.problems)  # of all items: ranks cut answers at the same length
        self.tokenizer, self.end_ids, self.marked = data.tokenizer, data.end_ids, data.marked
        self.adds = [f"val/{METRIC}"] if self.marked else []
        self.resumed_step = resumed_step

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if not trainer.is_global_zero or not self.file.exists():
            return
        kept = [entry for entry in read_answers(self.file) if entry["step"] <= self.resumed_step]
        rewrite(self.file, _lines(kept))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        n, rank, world = len(self.problems), trainer.global_rank, trainer.world_size
        if sharded(trainer):
            rank, world = 0, 1
        mine = self.problems[n * rank // world : n * (rank + 1) // world]
        # Decoding meets a new length at each token: compiled blocks would be compiled for each.
        with random_kept(), torch.compiler.set_stance("force_eager"):
            answers = solve(
                pl_module.model,
                self.tokenizer,
                mine,
                end_ids=self.end_ids,
                max_new_tokens=self.limit,
            )
        if self.marked:  # also where this rank has no item: all add up the same figures
            pair = [float(sum(answer.right for answer in answers)), float(len(answers))]
            right, count = torch.tensor(pair, device=pl_module.device).unbind()
            pl_module.held_out.add({METRIC: (right, count)})
        if trainer.is_global_zero:
            step = pl_module.counters.step
            entries = [self._entry(step, answer) for answer in answers[:WRITTEN]]
            append(self.file, _lines(entries))

    def _entry(self, step: int, answer: Answered) -> dict[str, Any]:
        entry = {
            "step": step,
            "question": answer.problem.messages[-1]["content"],
            "answer": answer.text,
            "expected": answer.problem.answer,
        }
        return {**entry, "right": answer.right} if self.marked else entry


def read_answers(file: Path) -> list[dict[str, Any]]:
    """Answers in an `answers.jsonl`: step, question, answer, expected, and right, where marked.

    A last line that a killed process left torn is dropped.
    """
    *whole, _ = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in whole]


def closing(file: Path, n: int = 5) -> list[str]:
    """Lines that show `n` answers of the last validation, wrong ones among them if there are any.

    Empty where no answer is in the file.
    """
    answers = read_answers(file)
    step = answers[-1]["step"] if answers else None
    last = [answer for answer in answers if answer["step"] == step]
    wrong = [answer for answer in last if answer.get("right") is False][: n // 2]
    others = [answer for answer in last if answer.get("right") is not False][: n - len(wrong)]
    head = [f"answers at step {step}, more in {file.name}:"] if last else []
    return [*head, *map(_shown, others), *map(_shown, wrong)]


def _shown(answer: dict[str, Any]) -> str:
    asked, given, expected = (_one_line(answer[k]) for k in ("question", "answer", "expected"))
    if "right" not in answer:
        return f"  {asked} -> {given}  (in the data: {expected})"
    if answer["right"]:
        return f"  right  {asked} -> {given}"
    return f"  wrong  {asked} -> {given}  (right: {expected})"


def _lines(entries: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


def _one_line(text: str) -> str:
    line = " / ".join(text.split("\n"))
    return line if len(line) <= 60 else f"{line[:57]}..."
