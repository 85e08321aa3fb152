"""The forms in which chats, pairs and prompts are written down, told apart by their keys."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from txlab.core.errors import RequestError
from txlab.data.chat.messages import Item, Message, message, messages, mute, ordered, shown

Entry = Mapping[str, Any]
"""The keys of a line that are not null."""


class Read(NamedTuple):
    """What a line was read as."""

    item: Item
    form: str
    """Name of the form it was written in."""
    keys: set[str]
    """Keys that were looked at; others are left alone."""


class Format(StrEnum):
    """How a chat is written down."""

    auto = "auto"
    """As the keys of each line say."""
    messages = "messages"
    """A list of `role` and `content`."""
    conversations = "conversations"
    """A list of `from` (human, gpt) and `value`."""
    completion = "completion"
    """`prompt` and `completion`, texts or messages; only the completion is learned."""
    instruction = "instruction"
    """`instruction`, maybe `input`, and `output`; maybe `history`, pairs of earlier turns."""


KEYS = {
    Format.messages: ("messages",),
    Format.conversations: ("conversations",),
    Format.completion: ("prompt", "completion"),
    Format.instruction: ("instruction", "output"),
}
"""Keys that a line of each format has."""
BESIDE = {"instruction": {"input", "history"}}
"""Keys that may stand beside another one and belong to it."""
PROMPTS = ("prompt", "question", "instruction", "conversations", "messages")
"""Keys under which a prompt stands, in the order they are looked for."""
FOREIGN = ("tools", "functions", "images", "videos", "audios", "chat_template_kwargs")
"""Keys that change what a chat means, so that they cannot be left alone."""


def chat(entry: Entry, where: str, wanted: Format = Format.auto) -> Read:
    """A chat; RequestError where the keys are not those of a format, or of several."""
    form = _form(entry, where, wanted)
    foreign(entry, where)
    learned = None
    if form in (Format.messages, Format.conversations):
        value = entry[form.value]
        found = _with_system(messages(value, where), entry, where)
        if muted := mute(value):
            shift = len(found) - len(value)
            learned = [n for n in _answers(found) if n - shift not in muted]
    elif form is Format.completion:
        given = _with_system(_said(entry, "prompt", "user", where), entry, where)
        found = [*given, *_said(entry, "completion", "assistant", where)]
        learned = [n for n in _answers(found) if n >= len(given)]
    else:
        answer = {"role": "assistant", "content": text(entry, "output", where)}
        found = [*_with_system(_instruction(entry, where), entry, where), answer]
    some = None if learned is None or learned == _answers(found) else tuple(learned)
    item = Item(where, ordered(found, where), learned=some)
    return Read(item, str(form), _keys(*KEYS[form]))


def pair(entry: Entry, where: str) -> Read:
    """A prompt, a chosen and a rejected answer, texts or messages.

    Without a prompt it is what both lists of messages begin with.
    """
    foreign(entry, where)
    values = [_side(entry, side, where) for side in ("chosen", "rejected")]
    name = next((key for key in PROMPTS[:-1] if key in entry), None)
    if name is None:
        lists = [value for value in values if not isinstance(value, str)]
        if len(lists) != 2:
            raise RequestError(
                f"{where}: no key 'prompt', and 'chosen' and 'rejected' are not both lists of "
                "messages that begin with it."
            )
        asked = _common(*lists)
    else:
        asked = _prompt(entry, name, where)
    chosen, rejected = (
        side if isinstance(side, str) else _answer(side, asked, where) for side in values
    )
    item = Item(where, ordered(_with_system(asked, entry, where), where), chosen, rejected)
    return Read(item, name or "implicit prompt", _keys("chosen", "rejected", name))


def question(entry: Entry, where: str) -> Read:
    """A prompt with its reference answer under `answer`, a text or a number."""
    foreign(entry, where)
    name = next((key for key in PROMPTS if key in entry), None)
    if name is None:
        raise _without(entry, f"none of {', '.join(PROMPTS)}", where)
    if "answer" not in entry:
        raise _without(entry, "no key 'answer'", where)
    answer = entry["answer"]
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise RequestError(f"{where}: answer is {shown(answer)}; expected a text or a number.")
    asked = ordered(_with_system(_prompt(entry, name, where), entry, where), where)
    if asked[-1]["role"] != "user":
        raise RequestError(f"{where}: the prompt ends with the assistant's message, not a user's.")
    return Read(Item(where, asked, str(answer)), name, _keys("answer", name))


def foreign(entry: Entry, where: str) -> None:
    """RequestError for a key that cannot be left alone."""
    if bad := [key for key in FOREIGN if entry.get(key)]:
        raise RequestError(f"{where}: {bad[0]} are not supported; leave the line out.")


def text(entry: Entry, name: str, where: str) -> str:
    """The text under a key."""
    if not isinstance(entry[name], str):
        raise RequestError(f"{where}: {name} is {shown(entry[name])}; expected text.")
    return entry[name]


def _keys(*names: str | None) -> set[str]:
    """Keys that were looked at, with those that belong to them."""
    known = {name for name in names if name is not None}
    return known.union({"system"}, *(BESIDE.get(name, set()) for name in known))


def _prompt(entry: Entry, name: str, where: str) -> list[Message]:
    """The messages to answer, from the key they stand under."""
    if name == "instruction":
        return _instruction(entry, where)
    return _said(entry, name, "user", where)


def _form(entry: Entry, where: str, wanted: Format) -> Format:
    found = [form for form, keys in KEYS.items() if all(key in entry for key in keys)]
    if wanted is not Format.auto:
        if wanted not in found:
            missing = next(key for key in KEYS[wanted] if key not in entry)
            raise _without(entry, f"no key {missing!r} (data.format={wanted})", where)
        return wanted
    if not found:
        kinds = " or ".join(" with ".join(map(repr, keys)) for keys in KEYS.values())
        raise _without(entry, f"no key {kinds}", where)
    if len(found) > 1:
        raise RequestError(
            f"{where}: it has the keys of {' and '.join(found)}; choose with data.format=NAME."
        )
    return found[0]


def _without(entry: Entry, what: str, where: str) -> RequestError:
    return RequestError(f"{where}: {what}; there are: {', '.join(map(str, entry)) or 'none'}.")


def _side(entry: Entry, name: str, where: str) -> str | list[Message]:
    """The text or the messages under `name`; one message is a list of one."""
    if name not in entry:
        raise _without(entry, f"no key {name!r}", where)
    value = entry[name]
    if isinstance(value, dict):
        return [message(value, f"{where}: {name}")]
    if not isinstance(value, str | list):
        raise RequestError(f"{where}: {name} is {shown(value)}; expected text or messages.")
    return value if isinstance(value, str) else messages(value, where)


def _said(entry: Entry, name: str, role: str, where: str) -> list[Message]:
    """The messages under `name`; a text is one of `role`."""
    side = _side(entry, name, where)
    return [{"role": role, "content": side}] if isinstance(side, str) else side


def _instruction(entry: Entry, where: str) -> list[Message]:
    """Earlier turns, then instruction and input, a line each, as the user's message."""
    history = entry.get("history") or []
    turns = history if isinstance(history, list) else [history]
    found: list[Message] = []
    for number, turn in enumerate(turns, 1):
        if not (isinstance(turn, list) and [type(side) for side in turn] == [str, str]):
            raise RequestError(
                f"{where}: turn {number} of history is {shown(turn)}; expected a list of what the "
                "user and the assistant said."
            )
        found += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
    parts = [text(entry, key, where) for key in ("instruction", "input") if key in entry]
    return [*found, {"role": "user", "content": "\n".join(part for part in parts if part)}]


def _with_system(found: list[Message], entry: Entry, where: str) -> list[Message]:
    """With the text under `system` as the first message."""
    said = text(entry, "system", where) if "system" in entry else ""
    if not said:
        return found
    first = {"role": "system", "content": said}
    if found and found[0]["role"] == "system":
        if found[0] != first:
            raise RequestError(f"{where}: 'system' and the system's message are not the same.")
        return found
    return [first, *found]


def _answers(found: list[Message]) -> list[int]:
    return [n for n, message in enumerate(found) if message["role"] == "assistant"]


def _common(one: list[Message], other: list[Message]) -> list[Message]:
    """What both begin with, but for the last message of either."""
    n = 0
    while n < min(len(one), len(other)) - 1 and one[n] == other[n]:
        n += 1
    return one[:n]


def _answer(side: list[Message], asked: list[Message], where: str) -> str:
    """The one answer that follows the prompt, which may be repeated before it."""
    rest = side[len(asked) :] if side[: len(asked)] == asked else side
    if len(rest) != 1 or rest[0]["role"] != "assistant":
        roles = ", ".join(message["role"] for message in rest) or "none"
        raise RequestError(
            f"{where}: expected one message of the assistant after the prompt; there are: {roles}."
        )
    return rest[0]["content"]
