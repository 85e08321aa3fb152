"""Broken tokenizers, data and configs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.data.batch import IGNORE, Batch
from txlab.data.chat import Prompts
from txlab.data.corrupt import MLM
from txlab.data.corrupt.corrupted import Row
from txlab.data.loader import EpochBatches, Part, StepBatches
from txlab.data.rows import Rows
from txlab.data.text import Text
from txlab.data.tokenizer import BPE, WordPiece


@caught_by("text_survives", "came back as")
class StripsText(BPE):
    """Spaces at the ends are lost."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return super().encode_batch([text.strip() for text in texts])


@caught_by("unknown_text_is_counted", "is lost, and nothing counts it")
class DropsWhatItDoesNotKnow(WordPiece):
    """Unknown words leave no token."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[i for i in ids if i != self.unk_id] for ids in super().encode_batch(texts)]


@caught_by("ids_are_in_the_vocabulary", "ids from")
class CountsTooFew(BPE):
    """Leaves the control tokens out of its size."""

    @property
    def vocab_size(self) -> int:
        return super().vocab_size - 3 if self._table else 0


@caught_by("text_makes_no_control_token", "is encoded with a control id")
class ReadsControlTokens(BPE):
    """Takes the spelling of a control token for the token."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        self._library.encode_special_tokens = False
        return super().encode_batch(texts)


@caught_by("control_tokens_are_no_text", "with control ids around it")
@caught_by("counts_bytes", "control token")
class SpellsControlTokens(BPE):
    """Control tokens are text when decoded."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(b"<s>" if i < 3 else super(type(self), self).decode_bytes([i]) for i in ids)


@caught_by("loads_as_it_was_saved", "saving left other files")
class SavesTwoFiles(BPE):
    """Needs a second file."""

    def save(self, file: str | PathLike[str]) -> None:
        super().save(file)
        Path(file).with_suffix(".merges").write_text("")


@caught_by("trains_the_same_way_twice", "two trainings on one text differ")
class HasARandomFingerprint(BPE):
    """Another fingerprint each time."""

    @property
    def fingerprint(self) -> str:
        return str(id(self))


@caught_by("learns_from_text", "bytes")
class LearnsNothing(BPE):
    """Bytes only."""

    def train(self, texts: Iterable[str]) -> None:
        super().train([])


@caught_by("batches_and_pieces_agree", "the pieces do not make up the text")
class LosesPieces(BPE):
    """The pieces of a text lack its last letter."""

    def pieces(self, text: str) -> Iterable[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        yield text[:-1] if len(text) > 500 else text


class Changed(Rows):
    """Rows with something done to each."""

    def __init__(self, rows: Rows, change: Any) -> None:
        self.rows, self.change = rows, change

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Batch:
        return self.change(dict(self.rows[index]))


@caught_by("rows_are_well_formed", "labels has shape (15,)")
class CutsLabels(Text):
    """One label too few."""

    def prepare(self) -> None:
        super().prepare()
        self.train = Changed(self.train, lambda row: {**row, "labels": row["labels"][:-1]})


@caught_by("labels_are_the_next_tokens", "labels are not shifted by 1")
class ShiftsTwice(Text):
    """Labels are the tokens after the next."""

    def prepare(self) -> None:
        super().prepare()

        def shifted(row: dict[str, Tensor]) -> dict[str, Tensor]:
            labels = row["labels"].roll(-1)
            return {**row, "labels": labels.where(row["labels"] != IGNORE, IGNORE)}

        self.train = Changed(self.train, shifted)


class RowZeroForOne(StepBatches):
    """A stream in which row 0 stands in for row 1."""

    def parts(self, step: int) -> list[Part]:
        found = super().parts(step)
        return [([0 if n == 1 else n for n in rows], *rest) for rows, *rest in found]


@caught_by("an_epoch_has_every_row_once", "is not each of the")
class RepeatsARow(Text):
    """Its stream leaves a row out."""

    def step_batches(self, *span: Any, **ranks: Any) -> StepBatches:
        stream = super().step_batches(*span, **ranks)
        stream.__class__ = RowZeroForOne
        return stream


@caught_by("rows_differ_from_epoch_to_epoch", "the rows of another epoch are the same")
class MasksOnce(MLM):
    """Each epoch's rows are those of the first."""

    def corrupted(self, row: Row, *, seed: int, epoch: int, number: int) -> Row:
        return super().corrupted(row, seed=seed, epoch=0, number=number)


@caught_by("validation_has_each_item_once", "2 ranks have items")
class AsksTwice(Prompts):
    """Every rank reads all held-out prompts."""

    def val_batches(self, *, rank: int = 0, world: int = 1) -> EpochBatches:
        return super().val_batches()


@caught_by("order_follows_the_seed", "another seed gives the same order")
class IgnoresItsSeed(Text):
    """One order for all."""

    def prepare(self) -> None:
        self.seed = 7
        super().prepare()


@caught_by("resumes_where_it_was", "a stream from step 3 differs")
class StartsAnew(Text):
    """A resumed stream begins at the beginning."""

    def step_batches(self, start: int = 0, stop: int | None = None, **ranks: Any) -> StepBatches:
        return super().step_batches(0, None if stop is None else stop - start, **ranks)


@caught_by("splits_change_no_step", "of 2 ranks has other rows")
class EachRankTheSame(Text):
    """All ranks read the first one's share."""

    def step_batches(self, *span: Any, rank: int = 0, world: int = 1) -> StepBatches:
        return super().step_batches(*span, rank=0, world=world)


@caught_by("validation_counts_each_row_once", "2 ranks supervise")
class ValidatesTwice(Text):
    """Every rank reads all held-out rows."""

    def val_batches(self, *, rank: int = 0, world: int = 1) -> EpochBatches:
        return super().val_batches()


@caught_by("held_out_is_held_out", "are in both parts")
class TrainsOnAll(Text):
    """Validates on training rows."""

    def prepare(self) -> None:
        super().prepare()
        self.val = self.train


@caught_by("prepares_once", "facts are not plain values")
class KeepsAnObject(Text):
    """Its facts hold a path."""

    def prepare(self) -> None:
        super().prepare()
        self.facts = {**self.facts, "folder": (1, 2)}


@caught_by("takes_a_given_tokenizer", "another tokenizer is used")
class TrainsItsOwn(Text):
    """Makes a tokenizer whatever it is given."""

    def prepare(self) -> None:
        self._tokenizer = BPE.Config(vocab_size=300)
        super().prepare()


@caught_by("config_survives_saving", "field min_frequency: 3 came back as 4")
class GrowsWhenRead(BPE):
    """A config that changes each time it is made."""

    @dataclass
    class Config(BPE.Config):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.min_frequency += 1
