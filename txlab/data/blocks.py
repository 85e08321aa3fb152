"""Packed blocks: the documents of a store, one after another, cut into rows of equal length."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from txlab.data.batch import IGNORE, Batch
from txlab.data.rows import Rows
from txlab.data.shards import Shards


class Blocks(Rows):
    """Row i holds tokens [i*context, (i+1)*context) of the store; its labels are one token further.

    So each token but the first of a document is the target of exactly one position of one row. What
    follows a document's end is another document: no label there. The last row is filled up with
    `pad_id`, which is not valid and has no label.

    With `isolate` a row says which document each token is of (0, 1 ... within the row; padding
    counts as one more) and its position, counted from the document's first token *in this row*: a
    document that began in an earlier row goes on at 0, for what lies before is not visible.
    Without, a row is one text: no documents, no positions, `valid` only in a batch with padding.
    """

    def __init__(self, store: Shards, *, context: int, pad_id: int, isolate: bool = True) -> None:
        self.store = store
        self.context = context
        self._pad_id = pad_id
        self._isolate = isolate

    def __len__(self) -> int:
        return max(0, -(-(len(self.store) - 1) // self.context))

    @property
    def supervised(self) -> int:
        """Targets of one epoch: all tokens but each document's first."""
        return self.store.count - self.store.documents

    def lengths(self) -> NDArray[np.int64]:
        return np.full(len(self), self.context, dtype=np.int64)

    def batch(self, indices: Sequence[int]) -> Batch:
        rows, count, width = np.asarray(indices, dtype=np.int64), len(self.store), self.context
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        begin = rows * width
        tokens = np.full((len(rows), width + 1), self._pad_id, dtype=np.int64)
        for row, start in enumerate(begin):
            part = self.store.read(int(start), int(start) + width + 1)
            tokens[row, : len(part)] = part
        first = self._first(begin)
        labels = np.where(first[:, 1:], IGNORE, tokens[:, 1:])
        place = np.arange(width + 1)
        valid = place[:-1] < (count - begin)[:, None]
        if not valid.all() or (begin + width >= count).any():
            labels[place[1:] >= (count - begin)[:, None]] = IGNORE
        batch: Batch = {
            "tokens": torch.from_numpy(tokens[:, :-1].copy()),
            "labels": torch.from_numpy(labels),
        }
        if self._isolate:
            first = first[:, :-1]
            first[:, 0] = True
            began = np.maximum.accumulate(np.where(first, place[:-1], 0), axis=1)
            batch["positions"] = torch.from_numpy(place[:-1] - began)
            batch["documents"] = torch.from_numpy(np.cumsum(first, axis=1, dtype=np.int64) - 1)
        if self._isolate or not valid.all():
            batch["valid"] = torch.from_numpy(valid)
        return batch

    def _first(self, begin: np.ndarray) -> np.ndarray:
        """[b, context + 1] bool: a document's first token (or the end of them all)."""
        width = self.context + 1
        first = np.zeros((len(begin), width), dtype=bool)
        for row, start in enumerate(begin.tolist()):
            first[row, self.store.starts(start, start + width) - start] = True
            if start < self.store.count < start + width:
                first[row, self.store.count - start] = True
        return first
