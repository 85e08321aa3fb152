"""Chats for supervised fine-tuning: what the assistant says is learned, nothing else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from txlab.data.chat.conversations import Conversations
from txlab.data.chat.items import Kind, named
from txlab.data.chat.messages import Item, read_chats
from txlab.data.chat.rows import ChatRows, pack
from txlab.data.rows import Rows
from txlab.data.source import data
from txlab.data.store import Store, StoreWriter


def _answered(item: Item) -> Item:
    answer = {"role": "assistant", "content": item.answer}
    return Item(item.where, [*item.messages, answer])


def _unusable(item: Item) -> str | None:
    there = any(message["role"] == "assistant" for message in item.messages)
    return None if there else "no_answer"


@data("chat")
class Chat(Conversations):
    """Chats of a JSONL file (`{"messages": [{"role", "content"}]}`), or of made-up tasks.

    Supervised are the assistant's contents and the control token right after each.
    """

    reads = "chats"
    stores = ("tokens", "mask")
    kind = Kind(read_chats, _answered, _unusable)

    @dataclass
    class Config(Conversations.Config):
        packed: bool = True
        """Several chats a row, invisible to each other; else one, and rows as wide as needed."""

    def write(self, items: Sequence[Item], writers: Sequence[StoreWriter]) -> None:
        tokens, mask = writers
        for item in items:
            with named(item):
                encoded = self.template.encode(item.messages)
            tokens.add(encoded.ids)
            mask.add([int(number >= 0) for number in encoded.answer])
            tokens.end()
            mask.end()

    def rows(self, stores: Sequence[Store], items: Sequence[Item], dropped: Counter[str]) -> Rows:
        assert isinstance(self.config, Chat.Config)
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
        packed = self.config.packed
        plan = pack(kept, self.context) if packed else [[number] for number, _ in kept]
        return ChatRows(
            tokens,
            mask,
            plan,
            context=self.context,
            pad_id=self.tokenizer.pad_id,
            packed=packed,
        )
