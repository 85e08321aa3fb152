"""Chats for supervised fine-tuning: what the assistant says is learned, nothing else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txlab.data.chat import forms
from txlab.data.chat.conversations import Conversations
from txlab.data.chat.forms import Entry, Format, Read
from txlab.data.chat.messages import Item
from txlab.data.chat.rows import ChatRows, pack
from txlab.data.rows import Rows
from txlab.data.source import data
from txlab.data.store import Store

LONG = 2048
"""Places of a packed row from which on the run says so."""


class Supervise(StrEnum):
    """Which of the assistant's messages are learned."""

    all = "all"
    """Every one."""
    last = "last"
    """The last one of each chat; the others are read only."""


@data("chat")
class Chat(Conversations):
    """Chats of files (messages, conversations, prompt and completion, instruction), or made up.

    Supervised are the assistant's contents and the control token right after each.
    """

    reads = "chats"
    stores = ("tokens", "mask")

    @dataclass
    class Config(Conversations.Config):
        format: Format = Format.auto
        """How files write chats: auto (as the keys of each line say), messages, conversations,
        completion, instruction."""
        supervise: Supervise = Supervise.all
        """Which answers are learned: all of them, or the last of each chat."""
        packed: bool = True
        """Several chats a row, invisible to each other; else one, and rows as wide as needed."""

    @property
    def _own(self) -> "Chat.Config":
        assert isinstance(self.config, Chat.Config)
        return self.config

    def parse(self, entry: Entry, where: str) -> Read:
        return forms.chat(entry, where, Format(self._own.format))

    def made(self, item: Item) -> Item:
        answer = {"role": "assistant", "content": item.answer}
        return Item(item.where, [*item.messages, answer])

    def unusable(self, item: Item) -> str | None:
        if not item.answers:
            return "no_answer"
        return None if self._learned(item) else "no_answer_to_learn"

    def _learned(self, item: Item) -> list[int]:
        """Numbers of the messages that are learned."""
        if self._own.supervise == Supervise.all:
            return item.taught
        return [n for n in item.taught if n == item.answers[-1]]

    @property
    def identity(self) -> dict[str, Any]:
        return {"supervise": self._own.supervise}

    def encode(self, item: Item) -> list[list[list[int]]]:
        encoded, learned = self.template.encode(item.messages), self._learned(item)
        return [[encoded.ids], [[int(number in learned) for number in encoded.answer]]]

    def rows(self, stores: Sequence[Store], items: Sequence[Item], dropped: Counter[str]) -> Rows:
        tokens, mask = stores
        kept: list[tuple[int, int]] = []
        for number, item in enumerate(items):
            begin, end = tokens.offsets[number : number + 2].tolist()
            if self.too_long(item, end - begin, dropped):
                continue
            end = min(end, begin + self.context)
            if not mask.tokens[begin + 1 : end].any():
                dropped["answer_cut_away"] += 1
                continue
            kept.append((number, end - begin))
        packed = self._own.packed
        plan = pack(kept, self.context) if packed else [[number] for number, _ in kept]
        return ChatRows(
            tokens,
            mask,
            plan,
            context=self.context,
            pad_id=self.tokenizer.pad_id,
            packed=packed,
        )

    @property
    def notes(self) -> list[str]:
        found = super().notes
        if self._own.packed and self.context >= LONG:
            found.append(
                f"rows of {self.context:,} tokens, from model.context, each filled with chats; "
                "data.packed=false or model.context=N makes them shorter"
            )
        return found
