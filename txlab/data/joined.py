"""Rows of several sources behind one another."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlab.data.batch import IGNORE, Batch
from txlab.data.rows import Rows


class Joined(Rows):
    """The rows of each part in turn; a batch may hold rows of several, padded to one width."""

    def __init__(self, parts: Sequence[Rows], *, pad_id: int) -> None:
        self.parts = parts
        self._pad_id = pad_id
        self._begins = np.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self._begins[-1])

    def batch(self, indices: Sequence[int]) -> Batch:
        rows = np.asarray(indices, dtype=np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)}")
        whose = np.searchsorted(self._begins, rows, side="right") - 1
        found, places = [], []
        for part in np.unique(whose).tolist():
            mine = np.flatnonzero(whose == part)
            found.append(self.parts[part].batch((rows[mine] - self._begins[part]).tolist()))
            places.append(mine)
        return stacked(found, np.argsort(np.concatenate(places)), self._pad_id)

    def lengths(self) -> NDArray[np.int64] | None:
        found = [part.lengths() for part in self.parts]
        known = [lengths for lengths in found if lengths is not None]
        return np.concatenate(known) if len(known) == len(found) else None


def stacked(batches: Sequence[Batch], order: NDArray[np.int64], pad_id: int) -> Batch:
    """The rows of all batches as one, taken in this order, padded to the widest."""
    if len(batches) == 1:
        return batches[0]
    tables = [cast(dict[str, Tensor], batch) for batch in batches]
    width = max(table["tokens"].shape[1] for table in tables)
    names = dict.fromkeys(name for table in tables for name in table)
    if any(table["tokens"].shape[1] < width for table in tables):
        names["valid"] = None
    fill = {"tokens": pad_id, "labels": IGNORE, "valid": False, "documents": width}
    taken = torch.from_numpy(order)
    whole = {}
    for name in names:
        columns = [
            table.get(name, torch.ones_like(table["tokens"], dtype=torch.bool)) for table in tables
        ]
        padded = [
            torch.nn.functional.pad(c, (0, width - c.shape[1]), value=fill.get(name, 0))
            for c in columns
        ]
        whole[name] = torch.cat(padded)[taken]
    return cast(Batch, whole)


class Span(Rows):
    """The rows from `begin` to before `end` of others."""

    def __init__(self, rows: Rows, begin: int, end: int) -> None:
        self._rows, self._begin, self._end = rows, begin, end

    def __len__(self) -> int:
        return self._end - self._begin

    def batch(self, indices: Sequence[int]) -> Batch:
        return self._rows.batch([self._begin + index for index in indices])
