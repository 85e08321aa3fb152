"""Span corruption: runs of tokens are hidden and written out behind the text."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from txlab.data.batch import IGNORE
from txlab.data.chance import uniforms
from txlab.data.corrupt.corrupted import CorruptedText, Row
from txlab.data.source import data
from txlab.data.text import Documents

SENTINELS = 100
SPELLING = "<extra_id_{}>"


def cut(n: int, parts: int, chance: NDArray[np.float64]) -> NDArray[np.int64]:
    """`n` things in `parts` runs of one or more [parts], each way of cutting equally likely.

    `chance`: n - 1 uniform numbers.
    """
    places = np.sort(np.argsort(chance[: n - 1], kind="stable")[: parts - 1]) + 1
    return np.diff(np.concatenate([[0], places, [n]]))


def span_counts(n: int, density: float, mean_span: float) -> tuple[int, int]:
    """(tokens, runs) that are hidden of `n` tokens; at least one is hidden and one stays."""
    hidden = min(max(round(n * density), 1), n - 1)
    return hidden, min(max(round(hidden / mean_span), 1), hidden, n - hidden + 1)


def noise_spans(
    n: int, density: float, mean_span: float, chance: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which of `n` tokens are hidden (Raffel et al. 2020, T5): runs kept and hidden in turn.

    Unlike there, a text need not end with a hidden run, so that short ones differ as well: the
    first and the last kept run may be empty. `chance`: 2 n + 1 uniform numbers.
    """
    hidden, runs = span_counts(n, density, mean_span)
    kept = cut(n - hidden + 2, runs + 1, chance[: n + 1])
    kept[[0, -1]] -= 1
    lengths = np.empty(2 * runs + 1, dtype=np.int64)
    lengths[0::2], lengths[1::2] = kept, cut(hidden, runs, chance[n + 1 :])
    return np.repeat(np.arange(2 * runs + 1) % 2 == 1, lengths)


def corrupt_spans(
    ids: NDArray[np.int64], hidden: NDArray[np.bool_], sentinels: NDArray[np.int64], eos_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(input, target): each hidden run is one sentinel in the input; the target names them all.

    Thank you <for inviting> me to your party <last> week: input "Thank you <0> me to your party <1>
    week", target "<0> for inviting <1> last <end>", where <end> is `eos_id`.
    """
    starts = hidden & ~np.concatenate([[False], hidden[:-1]])
    number = np.cumsum(starts) - 1
    marks = sentinels[np.maximum(number, 0)]
    inputs = np.where(starts, marks, ids)[~hidden | starts]
    parts = [ids[hidden & (number == i)] for i in range(int(starts.sum()))]
    target = [np.concatenate([sentinels[i : i + 1], part]) for i, part in enumerate(parts)]
    return inputs, np.concatenate([*target, [eos_id]])


def fitting(context: int, density: float, mean_span: float) -> int:
    """The longest text whose input and target fit into `context` places together."""
    n = context
    while n > 1:
        runs = span_counts(n, density, mean_span)[1]
        if n + 2 * runs + 1 <= context and runs <= SENTINELS:
            return n
        n -= 1
    return 0


@data("span_corruption")
class SpanCorruption(CorruptedText):
    """Text with hidden runs that are to be written out (Raffel et al. 2020, T5; Tay et al. 2022).

    A row is the text with a sentinel for each hidden run, then each sentinel with what it stands
    for, and the end token; only that second part is supervised. Text of several documents is one
    text. Each epoch hides others.
    """

    control = tuple(SPELLING.format(i) for i in range(SENTINELS))

    @dataclass
    class Config(CorruptedText.Config):
        documents: Documents = Documents.joined
        """joined: a row is one text, whatever documents it is of."""
        noise_density: float = 0.15
        """Share of the tokens that is hidden."""
        mean_span: float = 3.0
        """Tokens of a hidden run, on average."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 < self.noise_density < 1, "noise_density", "a number above 0, below 1")
            self.require(self.mean_span >= 1, "mean_span", "1 or more")
            self.require(
                self.documents == Documents.joined,
                "documents",
                "joined: what is hidden is written out behind all of a row's text",
            )

    def spare(self, context: int) -> int:
        assert isinstance(self.config, SpanCorruption.Config)
        return context - fitting(context, self.config.noise_density, self.config.mean_span)

    def corrupted(self, row: Row, *, seed: int, epoch: int, number: int) -> Row:
        assert isinstance(self.config, SpanCorruption.Config)
        valid = row.get("valid", torch.ones_like(row["tokens"], dtype=torch.bool))
        ids = row["tokens"][valid].numpy()
        tokens = np.full(self.context, self.tokenizer.pad_id, dtype=np.int64)
        labels = np.full(self.context, IGNORE, dtype=np.int64)
        inputs, target = ids, ids[:0]
        if len(ids) > 1:
            chance = uniforms(2 * len(ids) + 1, seed=seed, epoch=epoch, row=number)
            hidden = noise_spans(len(ids), self.config.noise_density, self.config.mean_span, chance)
            marks = np.array(self._controls, dtype=np.int64)
            inputs, target = corrupt_spans(ids, hidden, marks, self.tokenizer.eos_id)
        whole = np.concatenate([inputs, target])
        tokens[: len(whole)] = whole
        labels[len(inputs) - 1 : len(whole) - 1] = target
        return {
            "tokens": torch.from_numpy(tokens),
            "labels": torch.from_numpy(labels),
            "valid": torch.arange(self.context) < len(whole),
        }
