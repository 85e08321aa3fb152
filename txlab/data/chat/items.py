"""The items of a data set: read or made up, split, the unusable ones left out and counted."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data import files
from txlab.data.chat.messages import Item, split
from txlab.data.chat.template import Template


@dataclass(frozen=True)
class Kind:
    """What sets chats and pairs apart."""

    read: Callable[[Sequence[Path]], Iterator[Item]]
    """The items of files."""
    made: Callable[[Item], Item]
    """What is taken of a task's item."""
    unusable: Callable[[Item], str | None]
    """Why nothing can be learned from an item, as the name of a count; None where it can."""


@dataclass
class Items:
    """Usable items, to train on and held out."""

    train: list[Item]
    val: list[Item]
    read: int
    """All there were."""
    origin: dict[str, Any]
    """Where they come from, for the facts."""
    dropped: Counter[str]
    """How many were left out, by reason."""

    @property
    def sha256(self) -> str:
        """Identity of the items and their split."""
        parts = [[[i.messages, i.chosen, i.rejected] for i in part]
                 for part in (self.train, self.val)]  # fmt: skip
        return sha256(json.dumps(parts))

    def texts(self, template: Template) -> Iterator[str]:
        """What a tokenizer is trained on: all of the training chats that is no control token."""
        for item in self.train:
            with named(item):
                for answer in [item.chosen, item.rejected] if item.chosen is not None else [None]:
                    extra = [] if answer is None else [{"role": "assistant", "content": answer}]
                    pieces = template.pieces([*item.messages, *extra])
                    yield from (piece.text for piece in pieces if not piece.control)


def from_files(path: str, val_fraction: float, kind: Kind) -> Items:
    """The items of the files that `path` means."""
    found = files.find(path)
    read = list(kind.read(found))
    train, val = split(read, val_fraction)
    return Items(train, val, len(read), {"source": path, "files": len(found)}, Counter())


def usable(items: Items, kind: Kind, *, refuse: bool, system: str | None) -> Items:
    """Without those that cannot be learned from; `system` before chats that have no such message.

    With `refuse` the first unusable one is a RequestError.
    """
    dropped: Counter[str] = Counter()

    def kept(part: Sequence[Item]) -> list[Item]:
        found = []
        for item in part:
            reason = kind.unusable(item)
            if reason is None:
                found.append(_with_system(item, system))
                continue
            if refuse:
                raise RequestError(
                    f"{item.where}: {reason.replace('_', ' ')}; data.unusable=drop leaves it out."
                )
            dropped[reason] += 1
        return found

    return replace(items, train=kept(items.train), val=kept(items.val), dropped=dropped)


def _with_system(item: Item, text: str | None) -> Item:
    if text is None or item.messages[0]["role"] == "system":
        return item
    return replace(item, messages=[{"role": "system", "content": text}, *item.messages])


class named:
    """Errors in the block say which item they are about."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RequestError):
            raise RequestError(f"{self.item.where}: {error}") from error


def sha256(text: str) -> str:
    """Hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
