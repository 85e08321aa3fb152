"""Rows: what a data set is made of, by index."""

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlab.data.batch import IGNORE, Batch
from txlab.data.chance import HELD_OUT


class Rows:
    """A map-style data set: `len(rows)`; `rows[i]` is a `Batch` of tensors without row axis [t].

    Define `__getitem__` or `batch`: each is made of the other.
    """

    lines: ClassVar[int] = 1
    """Rows of a batch that one index makes; where they are several, `rows[i]` is [lines t]."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Batch:
        batch = cast(dict[str, Tensor], self.batch([index]))
        one = batch if self.lines > 1 else {name: tensor[0] for name, tensor in batch.items()}
        return cast(Batch, one)

    def batch(self, indices: Sequence[int]) -> Batch:
        """The rows at `indices` as one batch [b t]."""
        if type(self).__getitem__ is Rows.__getitem__:
            raise NotImplementedError
        return collate([self[i] for i in indices])

    def drawn(self, indices: Sequence[int], epochs: Sequence[int]) -> Batch:
        """`batch`, as each row is in its epoch: override where rows are made anew in each."""
        return self.batch(indices)

    def lengths(self) -> NDArray[np.int64] | None:
        """Places that each index takes in a batch of its own; None where rows do not tell."""
        return None


class FreshRows(Rows):
    """Rows that are made anew in each epoch: define `drawn`. By themselves they are held out."""

    def drawn(self, indices: Sequence[int], epochs: Sequence[int]) -> Batch:
        raise NotImplementedError

    def batch(self, indices: Sequence[int]) -> Batch:
        return self.drawn(indices, [HELD_OUT] * len(indices))


def padded(rows: Sequence[tuple[Tensor, Tensor]], pad_id: int) -> Batch:
    """Rows (tokens [t], labels [t]) of any lengths as one batch, padded to the longest."""
    shape = len(rows), max(len(tokens) for tokens, _ in rows)
    tokens, labels = torch.full(shape, pad_id), torch.full(shape, IGNORE)
    valid = torch.zeros(shape, dtype=torch.bool)
    for number, (ids, aims) in enumerate(rows):
        tokens[number, : len(ids)], labels[number, : len(ids)] = ids, aims
        valid[number, : len(ids)] = True
    return {"tokens": tokens, "labels": labels, "valid": valid}


def collate(rows: Sequence[Batch]) -> Batch:
    """Stack rows of one length; where only some have `valid`, the others are wholly valid."""
    tables = [cast(dict[str, Tensor], row) for row in rows]
    if any("valid" in table for table in tables):
        whole = torch.ones_like(tables[0]["tokens"], dtype=torch.bool)
        tables = [{"valid": whole, **table} for table in tables]
    return cast(Batch, {name: torch.stack([table[name] for table in tables]) for name in tables[0]})


def unsupervised(batch: Batch, first: int) -> Batch:
    """The same batch, its rows from number `first` on without label or item: they only fill it.

    A batch of fillers alone says so even where it had no items, so that its tokens are not counted.
    """
    labels = batch["labels"].clone()
    labels[first:] = IGNORE
    filled: Batch = {**batch, "labels": labels}
    if "items" in batch:
        filled["items"] = batch["items"].clone()
        filled["items"][first:] = -1
    elif not first:
        filled["items"] = labels.new_full((len(labels),), -1)
    return filled
