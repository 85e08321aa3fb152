"""Chats and preference pairs as they are written down: read from JSON lines, checked, split."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlab.core.errors import RequestError
from txlab.data import files

Message = dict[str, str]
"""`role` and `content`."""
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Item:
    """A chat; or, with `chosen` and `rejected`, a prompt and two answers to it."""

    where: str
    """File and line, or the task it was made by."""
    messages: Sequence[Message]
    chosen: str | None = None
    rejected: str | None = None

    @property
    def prompt(self) -> Sequence[Message]:
        """What comes before the last answer."""
        if self.chosen is not None:
            return self.messages
        last = max((n for n, m in enumerate(self.messages) if m["role"] == "assistant"), default=0)
        return self.messages[:last]

    @property
    def answer(self) -> str:
        """The last answer, or the chosen one; empty where there is none."""
        if self.chosen is not None:
            return self.chosen
        answers = [m["content"] for m in self.messages if m["role"] == "assistant"]
        return answers[-1] if answers else ""

    @property
    def digest(self) -> bytes:
        """Equal for equal prompts: these stay on one side of the split."""
        text = json.dumps([[m["role"], m["content"]] for m in self.prompt or self.messages])
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


def read_chats(found: Sequence[Path]) -> Iterator[Item]:
    """Chats of `{"messages": [{"role", "content"}, ...]}` lines; other keys are left alone."""
    for where, entry in files.objects(found):
        yield Item(where, conversation(_key(entry, "messages", where), where))


def read_pairs(found: Sequence[Path]) -> Iterator[Item]:
    """Pairs of `{"prompt", "chosen", "rejected"}` lines.

    The prompt is a text or messages, the answers are texts or messages. Without a prompt it is what
    both lists of messages begin with.
    """
    for where, entry in files.objects(found):
        sides = [_key(entry, side, where) for side in ("chosen", "rejected")]
        prompt = _prompt(entry.get("prompt"), where)
        lists = [_messages(side, where) for side in sides if not isinstance(side, str)]
        if prompt is None:
            if len(lists) != 2:
                raise RequestError(
                    f"{where}: no key 'prompt', and 'chosen' and 'rejected' are not both lists of "
                    "messages that begin with it."
                )
            prompt = _common(*lists)
        chosen, rejected = (
            side if isinstance(side, str) else _answer(_messages(side, where), prompt, where)
            for side in sides
        )
        yield Item(where, _ordered(prompt, where), chosen, rejected)


def conversation(value: Any, where: str) -> list[Message]:
    """Messages in an order that makes a chat; RequestError with `where` otherwise.

    A system message comes first or not at all, then a user's; the rest is free, so that one side
    may speak twice in a row.
    """
    return _ordered(_messages(value, where), where)


def _messages(value: Any, where: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise RequestError(f"{where}: expected a list of messages, not {_shown(value)}.")
    found = []
    for number, message in enumerate(value, 1):
        at = f"{where}: message {number}"
        if not isinstance(message, dict):
            raise RequestError(f"{at} is {_shown(message)}; expected role and content.")
        for name in ("role", "content"):
            if not isinstance(message.get(name), str):
                has = f"is {_shown(message[name])}" if name in message else "is missing"
                raise RequestError(f"{at}: {name} {has}; expected a string.")
        if message["role"] not in ROLES:
            raise RequestError(
                f"{at}: unknown role {message['role']!r}; there are: {', '.join(ROLES)}."
            )
        found.append({"role": message["role"], "content": message["content"]})
    return found


def _ordered(messages: list[Message], where: str) -> list[Message]:
    roles = [message["role"] for message in messages]
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
    return messages


def _prompt(value: Any, where: str) -> list[Message] | None:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return None if value is None else _messages(value, where)


def _common(one: list[Message], other: list[Message]) -> list[Message]:
    """What both begin with, but for the last message of either."""
    n = 0
    while n < min(len(one), len(other)) - 1 and one[n] == other[n]:
        n += 1
    return one[:n]


def _answer(messages: list[Message], prompt: list[Message], where: str) -> str:
    """The one answer that follows the prompt, which may be repeated before it."""
    rest = messages[len(prompt) :] if messages[: len(prompt)] == prompt else messages
    if len(rest) != 1 or rest[0]["role"] != "assistant":
        roles = ", ".join(message["role"] for message in rest) or "none"
        raise RequestError(
            f"{where}: expected one message of the assistant after the prompt; there are: {roles}."
        )
    return rest[0]["content"]


def _key(entry: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in entry:
        raise RequestError(f"{where}: no key {name!r}; there are: {', '.join(entry) or 'none'}.")
    value = entry[name]
    if not isinstance(value, str | list):
        raise RequestError(f"{where}: {name} is {_shown(value)}; expected text or messages.")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."


def split(items: Sequence[Item], fraction: float) -> tuple[list[Item], list[Item]]:
    """(training, held out), by a hash of the prompt: whatever the order, equal prompts together."""
    prompts = sorted({item.digest for item in items})
    n = min(max(1, round(fraction * len(prompts))), len(prompts) - 1) if fraction else 0
    held_out = set(prompts[:n])
    return (
        [item for item in items if item.digest not in held_out],
        [item for item in items if item.digest in held_out],
    )
