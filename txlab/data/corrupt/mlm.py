"""Masked language modelling: some tokens are hidden and are to be found from both sides."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from txlab.data.batch import IGNORE
from txlab.data.chance import uniforms
from txlab.data.corrupt.corrupted import CorruptedText, Row
from txlab.data.source import data
from txlab.data.tokenizer.tokenizer import Tokenizer

MASK = "<|mask|>"


def chosen_tokens(
    words: NDArray[np.int64], chance: NDArray[np.float64], rate: float
) -> NDArray[np.bool_]:
    """Which of a row's ordinary tokens are predicted: whole words, `rate` of the tokens on average.

    `words` [n]: the number of the word that each token belongs to, not falling. `chance`: a uniform
    number for each word, and one more. Words are taken in random order; the last one, of which only
    a part is left to take, with a probability of that part, so that no length is favoured. One at
    least is taken.
    """
    n_words = int(words[-1]) + 1 if len(words) else 0
    sizes = np.bincount(words, minlength=n_words)
    order = np.argsort(chance[:n_words], kind="stable")
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]]) if n_words else sizes
    part = (rate * len(words) - before) / np.maximum(sizes[order], 1)
    taken = np.zeros(n_words, dtype=bool)
    taken[order] = part > chance[-1]
    if n_words and not taken.any():
        taken[order[0]] = True
    return taken[words]


def word_numbers(
    ids: Int[Tensor, " t"], begins: Bool[Tensor, " v"], eligible: Bool[Tensor, " t"]
) -> NDArray[np.int64]:
    """The number of the word of each eligible token [n]; a gap between two of them ends a word."""
    place = eligible.nonzero()[:, 0]
    apart = torch.ones(len(place), dtype=torch.bool)
    apart[1:] = place[1:] != place[:-1] + 1
    return (torch.cumsum(apart | begins[ids[place]], 0) - 1).numpy()


def word_starts(tokenizer: Tokenizer) -> Bool[Tensor, " v"]:
    """Whether a token begins a word: unlike letters and digits that go on with the one before."""
    found = torch.ones(tokenizer.vocab_size, dtype=torch.bool)
    for i in range(tokenizer.vocab_size):
        text = tokenizer.decode_bytes([i])
        if text:
            found[i] = not (text[:1].isalnum() or text[0] >= 0x80)
    return found


def replaced(
    ids: Int[Tensor, " n"],
    chance: Float[Tensor, "2 n"],
    *,
    mask_id: int,
    ordinary: Int[Tensor, " k"],
) -> Int[Tensor, " n"]:
    """What stands for predicted tokens: the mask (80 %), any ordinary token (10 %), themselves."""
    other = ordinary[(chance[1] * len(ordinary)).long().clamp(max=len(ordinary) - 1)]
    masked = torch.where(chance[0] < 0.8, mask_id, other)
    return torch.where(chance[0] < 0.9, masked, ids)


@data("mlm")
class MLM(CorruptedText):
    """Text with hidden tokens, for masked language modelling (Devlin et al. 2018, BERT).

    Of a row's ordinary tokens a share is predicted: 80 % of it is replaced by the mask token, 10 %
    by any ordinary token, 10 % stays. Control tokens and padding are neither chosen nor drawn.
    Labels are the tokens themselves, at their own places. Each epoch hides others.
    """

    control = (MASK,)
    shifted = False

    @dataclass
    class Config(CorruptedText.Config):
        mask_rate: float = 0.15
        """Share of the ordinary tokens that is predicted."""
        whole_word: bool = False
        """Whether a word is predicted as a whole or not at all."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 < self.mask_rate < 1, "mask_rate", "a number above 0, below 1")

    def prepare(self) -> None:
        super().prepare()
        assert isinstance(self.config, MLM.Config)
        (self._mask_id,) = self._controls
        is_control = torch.zeros(self.tokenizer.vocab_size, dtype=torch.bool)
        is_control[list(self.tokenizer.control.values())] = True
        self._is_control = is_control
        self._ordinary = (~is_control).nonzero()[:, 0]
        self._begins = torch.ones_like(is_control)
        if self.config.whole_word:
            self._begins = word_starts(self.tokenizer)

    def corrupted(self, row: Row, *, seed: int, epoch: int, number: int) -> Row:
        assert isinstance(self.config, MLM.Config)
        ids = row["tokens"]
        eligible = ~self._is_control[ids]
        if "valid" in row:
            eligible &= row["valid"]
        n = int(eligible.sum())
        chance = uniforms(3 * n + 1, seed=seed, epoch=epoch, row=number)
        words = word_numbers(ids, self._begins, eligible)
        first = np.concatenate([chance[: int(words[-1]) + 1 if n else 0], chance[-1:]])
        chosen = torch.zeros_like(eligible)
        chosen[eligible] = torch.from_numpy(chosen_tokens(words, first, self.config.mask_rate))
        spans = torch.from_numpy(chance[n : 3 * n].reshape(2, n)[:, chosen[eligible].numpy()])
        tokens = ids.clone()
        tokens[chosen] = replaced(
            ids[chosen], spans, mask_id=self._mask_id, ordinary=self._ordinary
        )
        return {**row, "tokens": tokens, "labels": ids.where(chosen, torch.tensor(IGNORE))}
