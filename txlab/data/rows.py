"""Rows: what a data set is made of, by index."""

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlab.data.batch import IGNORE, Batch


class Rows:
    """A map-style data set: `len(rows)`; `rows[i]` is a `Batch` of tensors without row axis [t]."""

    lines: ClassVar[int] = 1
    """Rows of a batch that one index makes; where they are several, `rows[i]` is [lines t]."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Batch:
        raise NotImplementedError

    def batch(self, indices: Sequence[int]) -> Batch:
        """The rows at `indices` as one batch [b t]; override where that can be faster."""
        return collate([self[i] for i in indices])

    def drawn(self, indices: Sequence[int], epochs: Sequence[int]) -> Batch:
        """`batch`, as each row is in its epoch: override where rows are made anew in each."""
        return self.batch(indices)

    def lengths(self) -> NDArray[np.int64] | None:
        """Places that each index takes in a batch of its own; None where rows do not tell."""
        return None


def collate(rows: Sequence[Batch]) -> Batch:
    """Stack rows of one length; where only some have `valid`, the others are wholly valid."""
    tables = [cast(dict[str, Tensor], row) for row in rows]
    if any("valid" in table for table in tables):
        whole = torch.ones_like(tables[0]["tokens"], dtype=torch.bool)
        tables = [{"valid": whole, **table} for table in tables]
    return cast(Batch, {name: torch.stack([table[name] for table in tables]) for name in tables[0]})


def unsupervised(batch: Batch, first: int) -> Batch:
    """The same batch, its rows from number `first` on without label or item: they only fill it."""
    labels = batch["labels"].clone()
    labels[first:] = IGNORE
    filled: Batch = {**batch, "labels": labels}
    if "items" in batch:
        filled["items"] = batch["items"].clone()
        filled["items"][first:] = -1
    return filled
