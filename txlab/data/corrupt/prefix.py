"""Prefix language modelling: a text's beginning is given, only the rest is learned."""

import itertools
from dataclasses import dataclass

from txlab.data.batch import IGNORE
from txlab.data.chance import uniforms
from txlab.data.corrupt.corrupted import CorruptedText, Row
from txlab.data.source import data


@data("prefix_lm")
class PrefixLM(CorruptedText):
    """Text of which a random beginning is given (Raffel et al. 2020, section 3.2.3).

    Of each document in a row a share, uniform between the two bounds, is the prefix: its tokens are
    no targets. Each epoch cuts elsewhere. How tokens of the prefix see each other is the model's
    matter: a decoder shows them what came before, as it does everywhere.
    """

    @dataclass
    class Config(CorruptedText.Config):
        prefix_min: float = 0.0
        """The shortest prefix, as a share of the document's tokens in the row."""
        prefix_max: float = 1.0
        """The longest prefix; at least one token is left to predict."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.prefix_min <= 1, "prefix_min", "a number from 0 to 1")
            self.require(
                self.prefix_min <= self.prefix_max <= 1,
                "prefix_max",
                f"a number from prefix_min={self.prefix_min} to 1",
            )

    def corrupted(self, row: Row, *, seed: int, epoch: int, number: int) -> Row:
        assert isinstance(self.config, PrefixLM.Config)
        labels, low = row["labels"].clone(), self.config.prefix_min
        pieces = pieces_of(row)
        chance = uniforms(len(pieces), seed=seed, epoch=epoch, row=number)
        for (begin, end), drawn in zip(pieces, chance, strict=True):
            targets = labels[begin:end] != IGNORE
            share = low + (self.config.prefix_max - low) * float(drawn)
            given = min(int(share * (int(targets.sum()) + 1)), int(targets.sum()) - 1)
            if given > 0:  # the first token is given anyway: label i is the target of token i
                labels[begin : begin + given] = IGNORE
        return {**row, "labels": labels}


def pieces_of(row: Row) -> list[tuple[int, int]]:
    """(begin, end) of each document's part of a row; padding is in none."""
    length = int(row["valid"].sum()) if "valid" in row else len(row["tokens"])
    if "documents" not in row:
        return [(0, length)] if length else []
    documents = row["documents"][:length]
    edges = (documents[1:] != documents[:-1]).nonzero()[:, 0] + 1
    places = [0, *edges.tolist(), length]
    return [(a, b) for a, b in itertools.pairwise(places) if b > a]
