"""Fill-in-the-middle: a text's middle is moved behind its end."""

from dataclasses import dataclass

import numpy as np
import torch

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE
from txlab.data.chance import uniforms
from txlab.data.corrupt.corrupted import CorruptedText, Row
from txlab.data.corrupt.prefix import pieces_of
from txlab.data.source import data

PREFIX, SUFFIX, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
LEAST = 3
"""Tokens that a piece of text must have between its document's ends to be rearranged."""


def rearranged(
    text: list[int], cuts: tuple[int, int], marks: tuple[int, int, int], *, spm: bool
) -> list[int]:
    """The text with its middle, from cut to cut, at the end (Bavarian et al. 2022).

    prefix-suffix-middle: PREFIX p SUFFIX s MIDDLE m; suffix first (`spm`, their second variant):
    PREFIX SUFFIX s MIDDLE p m. `marks`: ids of PREFIX, SUFFIX, MIDDLE.
    """
    prefix, suffix, middle = marks
    first, second = cuts
    p, m, s = text[:first], text[first:second], text[second:]
    if spm:
        return [prefix, suffix, *s, middle, *p, *m]
    return [prefix, *p, suffix, *s, middle, *m]


@data("fim")
class FIM(CorruptedText):
    """Text of which some has its middle behind its end, to learn to fill in (Bavarian et al. 2022).

    A document's piece of a row is rearranged with probability `fim_rate`, cut at two random tokens,
    half of them with the suffix first. All of it is supervised, as text is. A piece that goes on in
    the next row ends where the row does: the token after it is no target. Three places are kept
    free for each piece that may be rearranged, the longest ones of the row. Each epoch draws anew.
    """

    control = (PREFIX, SUFFIX, MIDDLE)

    @dataclass
    class Config(CorruptedText.Config):
        fim_rate: float = 0.5
        """Probability that a piece is rearranged."""
        spm_rate: float = 0.5
        """Probability that a rearranged piece has its suffix first."""
        pieces: int | None = None
        """Pieces of a row that may be rearranged; None: one for each 64 tokens of the context."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.fim_rate <= 1, "fim_rate", "a number from 0 to 1")
            self.require(0 <= self.spm_rate <= 1, "spm_rate", "a number from 0 to 1")
            self.require(self.pieces is None or self.pieces > 0, "pieces", "above 0, or null")

    def spare(self, context: int) -> int:
        spare = 3 * self._most(context)
        if context - spare < LEAST + 2:
            raise RequestError(
                f"data=fim: {spare} of a row's model.context={context} places are kept free for "
                f"data.pieces={self._most(context)}; raise the one or lower the other."
            )
        return spare

    def _most(self, context: int) -> int:
        assert isinstance(self.config, FIM.Config)
        return self.config.pieces or max(1, context // 64)

    def corrupted(self, row: Row, *, seed: int, epoch: int, number: int) -> Row:
        assert isinstance(self.config, FIM.Config)
        pieces = pieces_of(row)
        chance = uniforms(4 * len(pieces), seed=seed, epoch=epoch, row=number).reshape(4, -1)
        lengths = [a - b for a, b in pieces]  # negative: the longest first, the earlier of equals
        longest = {*np.argsort(lengths, kind="stable")[: self._most(self.context)].tolist()}
        tokens = np.full(self.context, self.tokenizer.pad_id, dtype=np.int64)
        labels = np.full(self.context, IGNORE, dtype=np.int64)
        documents = np.zeros(self.context, dtype=np.int64)
        positions = np.zeros(self.context, dtype=np.int64)
        used = 0
        for i, (begin, end) in enumerate(pieces):
            ids, aims = row["tokens"][begin:end].tolist(), row["labels"][begin:end].tolist()
            aims[-1] = IGNORE
            if i in longest and chance[0, i] < self.config.fim_rate:
                spm = bool(chance[1, i] < self.config.spm_rate)
                ids, aims = self._moved(ids, aims, chance[2:, i], spm=spm)
            stop = used + len(ids)
            tokens[used:stop], labels[used:stop] = ids, aims
            documents[used:], positions[used:] = i, np.arange(self.context - used)
            used = stop
        documents[used:], positions[used:] = len(pieces), np.arange(self.context - used)
        made = {
            "tokens": torch.from_numpy(tokens),
            "labels": torch.from_numpy(labels),
            "valid": torch.arange(self.context) < used,
        }
        if "documents" in row:
            made["documents"] = torch.from_numpy(documents)
            made["positions"] = torch.from_numpy(positions)
        return made

    def _moved(
        self, ids: list[int], aims: list[int], chance: np.ndarray, *, spm: bool
    ) -> tuple[list[int], list[int]]:
        """A piece rearranged, between its document's first and last control token."""
        head = 1 if ids[0] == self.tokenizer.bos_id else 0
        tail = 1 if len(ids) > head and ids[-1] == self.tokenizer.eos_id else 0
        text = ids[head : len(ids) - tail]
        if len(text) < LEAST:
            return ids, aims
        first, second = sorted(int(c * (len(text) + 1)) for c in chance)
        prefix, suffix, middle = self._controls
        moved = rearranged(text, (first, second), (prefix, suffix, middle), spm=spm)
        made = [*ids[:head], *moved, *ids[len(ids) - tail :]] if tail else [*ids[:head], *moved]
        return made, [*made[1:], IGNORE]
