"""The items of a data set: read or made up, split, the unusable ones left out and counted."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.chat.messages import Item
from txlab.data.chat.template import Template


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
        parts = [[_identity(item) for item in part] for part in (self.train, self.val)]
        return sha256(json.dumps(parts))

    def texts(self, template: Template, *, skip: bool = False) -> Iterator[str]:
        """What a tokenizer is trained on: all of the training chats that is no control token.

        With `skip` a chat that the template refuses is passed over.
        """
        for item in self.train:
            try:
                with named(item):
                    found = [piece.text for chat in _chats(item) for piece in template.pieces(chat)
                             if not piece.control]  # fmt: skip
            except RequestError:
                if not skip:
                    raise
                continue
            yield from found

    def without(self, train: Collection[int], val: Collection[int], reason: str) -> "Items":
        """Those whose numbers are not named; the others are counted."""
        dropped = self.dropped + Counter({reason: len(train) + len(val)})
        left = [
            [item for n, item in enumerate(part) if n not in numbers]
            for part, numbers in ((self.train, train), (self.val, val))
        ]
        return replace(self, train=left[0], val=left[1], dropped=dropped)


def _identity(item: Item) -> list[Any]:
    found = [item.messages, item.chosen, item.rejected]
    return found if item.learned is None else [*found, item.learned]


def _chats(item: Item) -> Iterator[list[dict[str, str]]]:
    """The chat, or the prompt with each of its answers."""
    answers = [answer for answer in (item.chosen, item.rejected) if answer is not None]
    for answer in answers:
        yield [*item.messages, {"role": "assistant", "content": answer}]
    if not answers:
        yield list(item.messages)


def usable(
    items: Items,
    unusable: Callable[[Item], str | None],
    *,
    refuse: bool,
    system: str | None,
) -> Items:
    """Without those that cannot be learned from; `system` before chats that have no such message.

    `unusable` says why nothing can be learned from an item, as the name of a count. With `refuse`
    the first such one is a RequestError.
    """
    dropped: Counter[str] = Counter()

    def kept(part: Sequence[Item]) -> list[Item]:
        found = []
        for item in part:
            reason = unusable(item)
            if reason is None:
                found.append(_with_system(item, system))
                continue
            if refuse:
                raise RequestError(
                    f"{item.where}: {reason.replace('_', ' ')}; data.unusable=drop leaves it out."
                )
            dropped[reason] += 1
        return found

    train, val = kept(items.train), kept(items.val)
    return replace(items, train=train, val=val, dropped=items.dropped + dropped)


def _with_system(item: Item, text: str | None) -> Item:
    if text is None or item.messages[0]["role"] == "system":
        return item
    messages = [{"role": "system", "content": text}, *item.messages]
    learned = None if item.learned is None else tuple(n + 1 for n in item.learned)
    return replace(item, messages=messages, learned=learned)


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
