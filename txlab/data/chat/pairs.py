"""Pairs of answers to one prompt, a better and a worse one: what preferences are learned from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from txlab.core.errors import RequestError
from txlab.data.chat import forms
from txlab.data.chat.conversations import Conversations
from txlab.data.chat.forms import Entry, Read
from txlab.data.chat.messages import Item
from txlab.data.chat.rows import PairRows
from txlab.data.rows import Rows
from txlab.data.source import data
from txlab.data.store import Store


@data("pairs")
class Pairs(Conversations):
    """Pairs of files (prompt, chosen, rejected: texts or messages), or of made-up tasks.

    A batch has two rows for each pair, 2i with the chosen answer and 2i + 1 with the rejected one,
    after the same ids of the prompt; labels are the answers and their end tokens. `batch_size` and
    `micro_batch_size` count pairs. With too_long=cut both answers are cut at the context; a pair
    whose prompt fills it, or whose answers are then the same, is dropped and counted.
    """

    reads = "pairs"
    stores = ("tokens",)

    @dataclass
    class Config(Conversations.Config):
        pass

    def parse(self, entry: Entry, where: str) -> Read:
        return forms.pair(entry, where)

    def unusable(self, item: Item) -> str | None:
        if not (item.chosen or "").strip() or not (item.rejected or "").strip():
            return "empty_side"
        return "equal_sides" if item.chosen == item.rejected else None

    @property
    def sequence(self) -> float:
        return super().sequence / 2  # an item is two sequences, each with the prompt

    def encode(self, item: Item) -> list[list[list[int]]]:
        """Ids of the prompt and of either answer with its end token."""
        prompts, answers = [], []
        for content in (item.chosen, item.rejected):
            assert content is not None
            messages = [*item.messages, {"role": "assistant", "content": content}]
            encoded = self.template.encode(messages)
            mine = [n == len(messages) - 1 for n in encoded.answer]
            begin = mine.index(True)
            prompts.append(encoded.ids[:begin])
            answers.append([i for i, own in zip(encoded.ids, mine, strict=True) if own])
        if prompts[0] != prompts[1]:
            raise RequestError("the chat template writes different prompts before the two answers.")
        return [[prompts[0], *answers]]

    def rows(self, stores: Sequence[Store], items: Sequence[Item], dropped: Counter[str]) -> Rows:
        (store,) = stores
        kept: list[int] = []
        rows = PairRows(store, kept, context=self.context, pad_id=self.tokenizer.pad_id)
        for number, item in enumerate(items):
            prompt, chosen, rejected = rows.parts(number)
            if self.too_long(item, len(prompt) + max(len(chosen), len(rejected)), dropped):
                continue
            room = self.context - len(prompt)
            if room <= 0:
                dropped["prompt_too_long"] += 1
            elif chosen[:room].tolist() == rejected[:room].tolist():
                dropped["equal_after_cut"] += 1
            else:
                kept.append(number)
        return rows
