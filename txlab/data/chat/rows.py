"""Rows of chats, several packed into one or each by itself, of pairs of answers, of prompts."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from txlab.data.batch import IGNORE, Batch
from txlab.data.packing import best_fit
from txlab.data.rows import Rows
from txlab.data.store import Store


class ChatRows(Rows):
    """Row i holds the chats `plan[i]`, each cut at `context` tokens.

    Packed rows have `context` places, documents and positions: chats do not see each other. Else a
    row is one chat, and a batch is as wide as its longest. Only answers have labels.
    """

    def __init__(
        self, tokens: Store, mask: Store, plan: Sequence[Sequence[int]], *, context: int,
        pad_id: int, packed: bool,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.context = context
        self._tokens, self._mask = tokens, mask
        self._pad_id, self._packed = pad_id, packed

    def __len__(self) -> int:
        return len(self.plan)

    def lengths(self) -> NDArray[np.int64]:
        if self._packed:
            return np.full(len(self), self.context, dtype=np.int64)
        sizes = np.diff(self._tokens.offsets)[[chat for (chat,) in self.plan]]
        return np.minimum(sizes, self.context)

    def batch(self, indices: Sequence[int]) -> Batch:
        chats = [[self._chat(i) for i in self.plan[index]] for index in indices]
        width = self.context if self._packed else max(len(ids) for ((ids, _),) in chats)
        table = _Table(len(chats), width, self._pad_id)
        for row, of_row in enumerate(chats):
            for ids, supervised in of_row:
                table.add(row, ids, supervised)
        return table.batch(documents=self._packed)

    def _chat(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        begin, end = self._tokens.offsets[number : number + 2]
        part = slice(begin, min(end, begin + self.context))
        # Stores are unsigned, labels may be negative.
        return self._tokens.tokens[part].astype(np.int64), self._mask.tokens[part] > 0


class PairRows(Rows):
    """Pair i makes two rows: the prompt with the chosen answer, and with the rejected one.

    The store holds prompt, chosen, rejected of each pair as three documents. Answers are cut at
    `context`. Only they have labels; a batch is as wide as its longest row.
    """

    lines: ClassVar[int] = 2

    def __init__(self, store: Store, kept: Sequence[int], *, context: int, pad_id: int) -> None:
        self.kept = kept
        self.context = context
        self._store, self._pad_id = store, pad_id

    def __len__(self) -> int:
        return len(self.kept)

    def batch(self, indices: Sequence[int]) -> Batch:
        sides = []
        for index in indices:
            prompt, *answers = self.parts(self.kept[index])
            for answer in answers:
                ids = np.concatenate([prompt, answer])[: self.context].astype(np.int64)
                sides.append((ids, np.arange(len(ids)) >= len(prompt)))
        table = _Table(len(sides), max(len(ids) for ids, _ in sides), self._pad_id)
        for row, (ids, supervised) in enumerate(sides):
            table.add(row, ids, supervised)
        return table.batch(documents=False)

    def lengths(self) -> NDArray[np.int64]:
        """Places that a pair takes: its two rows, as wide as the longer one."""
        sizes = np.diff(self._store.offsets).reshape(-1, 3)[self.kept]
        widest = sizes[:, 0] + sizes[:, 1:].max(axis=1)
        return self.lines * np.minimum(widest, self.context)

    def parts(self, pair: int) -> list[NDArray[Any]]:
        """Ids of prompt, chosen and rejected answer."""
        places = self._store.offsets[3 * pair : 3 * pair + 4]
        return [self._store.tokens[a:b] for a, b in itertools.pairwise(places)]


class PromptRows(Rows):
    """Row i is a prompt of the store, padded on the right, without labels.

    `items` says which item it is: its number in the store, counted on from `first`.
    """

    def __init__(self, store: Store, kept: Sequence[int], *, first: int, pad_id: int) -> None:
        self.kept = kept
        self._store, self._first, self._pad_id = store, first, pad_id

    def __len__(self) -> int:
        return len(self.kept)

    def batch(self, indices: Sequence[int]) -> Batch:
        numbers = [self.kept[index] for index in indices]
        prompts = [self._prompt(number) for number in numbers]
        table = _Table(len(prompts), max(map(len, prompts)), self._pad_id)
        for row, ids in enumerate(prompts):
            table.add(row, ids, np.zeros(len(ids), dtype=bool))
        items = torch.tensor([self._first + number for number in numbers])
        return {**table.batch(documents=False), "items": items}

    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self._store.offsets)[self.kept]

    def _prompt(self, number: int) -> NDArray[np.int64]:
        begin, end = self._store.offsets[number : number + 2]
        return self._store.tokens[begin:end].astype(np.int64)


class _Table:
    """Rows of padding, to which documents are added one after another."""

    def __init__(self, rows: int, width: int, pad_id: int) -> None:
        self.tokens = np.full((rows, width), pad_id, dtype=np.int64)
        self.labels = np.full((rows, width), IGNORE, dtype=np.int64)
        self.positions = np.zeros((rows, width), dtype=np.int64)
        self.documents = np.zeros((rows, width), dtype=np.int64)
        self.valid = np.zeros((rows, width), dtype=bool)
        self._used = [0] * rows
        self._count = [0] * rows

    def add(self, row: int, ids: NDArray[np.int64], supervised: NDArray[np.bool_]) -> None:
        """Put a document behind what the row has; each supervised id is the label one place before.

        The first id is nobody's label: nothing of the document comes before it.
        """
        begin = self._used[row]
        end = begin + len(ids)
        self.tokens[row, begin:end] = ids
        self.labels[row, begin : end - 1] = np.where(supervised[1:], ids[1:], IGNORE)
        self.positions[row, begin:end] = np.arange(len(ids))
        self.positions[row, end:] = np.arange(self.tokens.shape[1] - end)
        self.documents[row, begin:end] = self._count[row]
        self.documents[row, end:] = self._count[row] + 1
        self.valid[row, begin:end] = True
        self._used[row], self._count[row] = end, self._count[row] + 1

    def batch(self, *, documents: bool) -> Batch:
        batch: Batch = {
            "tokens": torch.from_numpy(self.tokens),
            "labels": torch.from_numpy(self.labels),
            "valid": torch.from_numpy(self.valid),
        }
        if documents:
            batch["positions"] = torch.from_numpy(self.positions)
            batch["documents"] = torch.from_numpy(self.documents)
        return batch


def pack(lengths: Iterable[tuple[int, int]], context: int) -> list[list[int]]:
    """Chats, given as (number, length), in rows of `context` places; none is split."""
    chats = list(lengths)
    found = best_fit([length for _, length in chats], context)
    rows: list[list[int]] = [[] for _ in range(int(found.max(initial=-1)) + 1)]
    for (number, _), row in zip(chats, found.tolist(), strict=True):
        rows[row].append(number)
    return rows


def figures(rows: Rows, unk_id: int | None = None) -> dict[str, Any]:
    """Counts of items, rows, tokens, supervised tokens; entropy of the latter in nats, if any.

    With `unk_id` also how often that token, which stands for unknown text, comes.
    """
    tokens, unknown, labels = 0, 0, [np.zeros(0, dtype=np.int64)]
    for i in range(len(rows)):
        batch = rows.batch([i])
        tokens += int(batch["valid"].sum()) if "valid" in batch else batch["tokens"].numel()
        unknown += int((batch["tokens"] == unk_id).sum()) if unk_id is not None else 0
        labels.append(batch["labels"][batch["labels"] != IGNORE].numpy())
    found = np.concatenate(labels)
    counts = np.unique(found, return_counts=True)[1]
    shares = counts / max(1, len(found))
    plan = rows.plan if isinstance(rows, ChatRows) else [[i] for i in range(len(rows))]
    return {
        "items": sum(map(len, plan)),
        "rows": len(rows),
        "tokens": tokens,
        **({} if unk_id is None else {"unknown": unknown}),
        "supervised": len(found),
        "entropy": float(-(shares * np.log(shares)).sum()) if len(found) else None,
    }
