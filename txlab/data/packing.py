"""Whole documents in rows: which go together, and the rows they make."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from txlab.data.batch import IGNORE, Batch
from txlab.data.rows import Rows
from txlab.data.shards import Shards


@dataclass(frozen=True)
class Pieces:
    """Documents, those longer than a row cut into pieces as long as it, in order."""

    begins: NDArray[np.int64]
    """Place of each piece's first token."""
    lengths: NDArray[np.int64]
    goes_on: NDArray[np.bool_]
    """Whether the token that follows a piece is of the same document: its last label."""


def cut(offsets: NDArray[np.int64], context: int) -> Pieces:
    """The pieces of documents that begin at these places; the last one is the end.

    Each token but the first of a document is the label of one place of one piece. A last token that
    would be a piece by itself is left out: it is a label already, and nothing follows it.
    """
    sizes = np.diff(offsets)
    counts = -(-(sizes - 1) // context)
    document = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    left = sizes[document] - number * context
    return Pieces(offsets[document] + number * context, np.minimum(left, context), left > context)


def best_fit(lengths: Sequence[int] | NDArray[np.int64], context: int) -> NDArray[np.int64]:
    """The row that each piece goes into: the fullest that it fits into, in the order given.

    Nearly as tight as after sorting, and what shares a row is not alike in length.
    """
    found = np.empty(len(lengths), dtype=np.int64)
    open_rows: dict[int, list[int]] = {}
    rooms: list[int] = []
    n_rows = 0
    for number, length in enumerate(
        lengths.tolist() if isinstance(lengths, np.ndarray) else lengths
    ):
        place = bisect.bisect_left(rooms, length)
        if place == len(rooms):
            row, room = n_rows, context
            n_rows += 1
        else:
            room = rooms[place]
            row = open_rows[room].pop()
            if not open_rows[room]:
                del open_rows[room], rooms[place]
        found[number] = row
        left = room - length
        if left > 0:
            if left not in open_rows:
                open_rows[left] = []
                bisect.insort(rooms, left)
            open_rows[left].append(row)
    return found


class Packed(Rows):
    """Rows of whole documents: numbered, with positions from 0, padded at the end.

    With `rows` (the row of each piece) all are `context` wide. Without, a row is one piece, and a
    batch is as wide as its longest.
    """

    def __init__(
        self,
        store: Shards,
        pieces: Pieces,
        rows: NDArray[np.int64] | None,
        *,
        context: int,
        pad_id: int,
    ) -> None:
        self.store = store
        self.context = context
        self._pieces, self._pad_id = pieces, pad_id
        self._shared = rows is not None
        n = len(pieces.begins)
        rows = np.arange(n) if rows is None else rows
        self._order = np.argsort(rows, kind="stable")
        self._begins = np.cumsum([0, *np.bincount(rows)]) if n else np.zeros(1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._begins) - 1

    @property
    def tokens(self) -> int:
        """Places that are no padding, of all rows."""
        return int(self._pieces.lengths.sum())

    @property
    def pieces(self) -> int:
        """Documents and parts of such in all rows."""
        return len(self._pieces.lengths)

    def lengths(self) -> NDArray[np.int64]:
        if self._shared:
            return np.full(len(self), self.context, dtype=np.int64)
        return self._pieces.lengths

    def batch(self, indices: Sequence[int]) -> Batch:
        pieces = [self._of_row(index) for index in indices]
        width = self.context
        if not self._shared:
            width = max(int(self._pieces.lengths[p].sum()) for p in pieces)
        shape = (len(pieces), width)
        tokens, labels = np.full(shape, self._pad_id), np.full(shape, IGNORE)
        positions, documents = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        valid = np.zeros(shape, dtype=bool)
        for row, of_row in enumerate(pieces):
            end = 0
            for number, piece in enumerate(of_row.tolist()):
                begin, length = end, int(self._pieces.lengths[piece])
                end += length
                at, more = int(self._pieces.begins[piece]), int(self._pieces.goes_on[piece])
                ids = self.store.read(at, at + length + more)
                tokens[row, begin:end] = ids[:length]
                labels[row, begin : begin + len(ids) - 1] = ids[1:]
                positions[row, begin:end] = np.arange(length)
                documents[row, begin:end] = number
            positions[row, end:] = np.arange(width - end)
            documents[row, end:] = len(of_row)
            valid[row, :end] = True
        table = {"tokens": tokens, "labels": labels, "valid": valid}
        if self._shared:
            table |= {"positions": positions, "documents": documents}
        return cast(Batch, {name: torch.from_numpy(array) for name, array in table.items()})

    def _of_row(self, row: int) -> NDArray[np.int64]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self._order[self._begins[row] : self._begins[row + 1]]
