"""Chats, pairs and prompts as items: messages in an order that makes a chat, and their split."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.split import by_digest

Message = dict[str, str]
"""`role` and `content`."""
ROLES = ("system", "user", "assistant")
SPEAKERS = {"system": "system", "human": "user", "user": "user",
            "gpt": "assistant", "assistant": "assistant"}  # fmt: skip
"""Roles of messages that are written as `from` and `value`."""
CALLS = ("tool_calls", "function_call")
"""Keys of a message that say something beside its content."""


@dataclass(frozen=True)
class Item:
    """A chat; or a prompt with its answer, `chosen`, and maybe one that is worse, `rejected`."""

    where: str
    """File and line, or the task it was made by."""
    messages: Sequence[Message]
    chosen: str | None = None
    rejected: str | None = None
    learned: tuple[int, ...] | None = None
    """Numbers of the messages that may be learned; None: all of the assistant's."""

    @property
    def prompt(self) -> Sequence[Message]:
        """What comes before the last answer."""
        if self.chosen is not None:
            return self.messages
        return self.messages[: max(self.answers, default=0)]

    @property
    def answer(self) -> str:
        """The last answer, or the chosen one; empty where there is none."""
        if self.chosen is not None:
            return self.chosen
        return self.messages[self.answers[-1]]["content"] if self.answers else ""

    @property
    def answers(self) -> list[int]:
        """Numbers of the assistant's messages."""
        return [n for n, message in enumerate(self.messages) if message["role"] == "assistant"]

    @property
    def taught(self) -> list[int]:
        """Those of them that may be learned."""
        return self.answers if self.learned is None else list(self.learned)

    @property
    def digest(self) -> bytes:
        """Equal for equal prompts: these stay on one side of the split."""
        text = json.dumps([[m["role"], m["content"]] for m in self.prompt or self.messages])
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


def conversation(value: Any, where: str) -> list[Message]:
    """Messages in an order that makes a chat; RequestError with `where` otherwise.

    A system message comes first or not at all, then a user's; the rest is free, so that one side
    may speak twice in a row.
    """
    return ordered(messages(value, where), where)


def messages(value: Any, where: str) -> list[Message]:
    """Messages written as `role` and `content`, or as `from` and `value`, in any order."""
    if not isinstance(value, list) or not value:
        raise RequestError(f"{where}: expected a list of messages, not {shown(value)}.")
    return [message(entry, f"{where}: message {n}") for n, entry in enumerate(value, 1)]


def message(entry: Any, at: str) -> Message:
    """One message; what else it says is left alone, but for `CALLS`, which are refused."""
    if not isinstance(entry, dict):
        raise RequestError(f"{at} is {shown(entry)}; expected role and content.")
    theirs = not {"role", "content"} & entry.keys() and {"from", "value"} & entry.keys()
    names = ("from", "value") if theirs else ("role", "content")
    role, content = entry.get(names[0]), _text(entry.get(names[1]))
    for name, found in zip(names, (role, content), strict=True):
        if not isinstance(found, str):
            has = f"is {shown(entry[name])}" if name in entry else "is missing"
            raise RequestError(f"{at}: {name} {has}; expected a string.")
    known = SPEAKERS if theirs else {role: role for role in ROLES}
    if role not in known:
        raise RequestError(f"{at}: unknown role {role!r}; there are: {', '.join(known)}.")
    if calls := [name for name in CALLS if entry.get(name)]:
        raise RequestError(f"{at}: {calls[0]} cannot be learned; leave the line out.")
    if entry.get("weight") not in (None, 0, 1):
        raise RequestError(f"{at}: weight is {shown(entry['weight'])}; expected 0 or 1.")
    return {"role": known[role], "content": content}


def mute(value: Any) -> set[int]:
    """Numbers of those messages that their `weight` of 0 keeps from being learned."""
    return {n for n, entry in enumerate(value) if entry.get("weight") == 0}


def _text(content: Any) -> Any:
    """Parts of text as one text; anything else as it is."""
    if not isinstance(content, list) or not content:
        return content
    parts = [part.get("text") for part in content if isinstance(part, Mapping)
             and part.get("type", "text") == "text"]  # fmt: skip
    texts = [text for text in parts if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(content) else content


def ordered(found: list[Message], where: str) -> list[Message]:
    """The messages themselves; RequestError where their order makes no chat."""
    roles = [message["role"] for message in found]
    if "system" in roles[1:]:
        number = roles.index("system", 1) + 1
        raise RequestError(f"{where}: message {number} is the system's; that can only come first.")
    first = 1 if roles[:1] == ["system"] else 0
    if roles[first:] and roles[first] != "user":
        raise RequestError(
            f"{where}: message {first + 1} is the {roles[first]}'s; a chat begins with the user's, "
            "after the system's if there is one."
        )
    if not roles[first:]:
        raise RequestError(f"{where}: there is no message of a user.")
    return found


def shown(value: Any) -> str:
    """A value in one short line, as JSON writes it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def split(items: Sequence[Item], fraction: float) -> tuple[list[Item], list[Item]]:
    """(training, held out), by a hash of the prompt: whatever the order, equal prompts together."""
    return by_digest(items, lambda item: item.digest, fraction)
