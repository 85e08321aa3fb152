"""Prompts with reference answers: what a model answers by itself and is judged by."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from txlab.data.batch import Batch
from txlab.data.chat import forms
from txlab.data.chat.conversations import Conversations
from txlab.data.chat.forms import Entry, Read
from txlab.data.chat.messages import Item
from txlab.data.chat.rows import PromptRows
from txlab.data.problem import Problem
from txlab.data.rows import Rows
from txlab.data.source import data
from txlab.data.store import Store


@data("prompts")
class Prompts(Conversations):
    """Prompts and the answers to them, of files (prompt or messages, answer), or of made-up tasks.

    A row is the ids of a prompt, up to where the answer begins; shorter ones are padded on the
    right. There are no labels: `problems_of(batch)` has the reference answers. A prompt that leaves
    no room for an answer in the context is left out and counted.
    """

    reads = "prompts"
    stores = ("tokens",)
    supervised = False

    @dataclass
    class Config(Conversations.Config):
        pass

    def parse(self, entry: Entry, where: str) -> Read:
        return forms.question(entry, where)

    def made(self, item: Item) -> Item:
        return replace(item, rejected=None)

    def unusable(self, item: Item) -> str | None:
        return None if item.answer.strip() else "no_answer"

    def encode(self, item: Item) -> list[list[list[int]]]:
        return [[self.template.prompt(item.messages)]]

    def rows(self, stores: Sequence[Store], items: Sequence[Item], dropped: Counter[str]) -> Rows:
        (store,) = stores
        kept: list[int] = []
        for number, item in enumerate(items):
            length = int(store.offsets[number + 1] - store.offsets[number])
            if self.too_long(item, length + 1, dropped):
                continue
            if length < self.context:
                kept.append(number)
            else:
                dropped["prompt_too_long"] += 1
        first = 0 if items is self.items.train else len(self.items.train)
        return PromptRows(store, kept, first=first, pad_id=self.tokenizer.pad_id)

    def problem(self, number: int) -> Problem:
        """The item of a number in `Batch.items`: its messages, ids and reference answer."""
        return self._problem((self.items.train + self.items.val)[number])

    def problems_of(self, batch: Batch) -> list[Problem | None]:
        """The item of each row; None for a row that only fills up a batch."""
        assert "items" in batch, "a batch of data=prompts"
        return [None if i < 0 else self.problem(i) for i in batch["items"].tolist()]
