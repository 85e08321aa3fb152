"""Chat templates: Jinja text that turns messages into the one text a model reads.

Where the answers lie in what a template writes is found out by marking them; a template that hides
them is refused.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from txlab.core.errors import RequestError
from txlab.data.chat.messages import Message
from txlab.data.chat.sandbox import compiled
from txlab.data.tokenizer.tokenizer import Tokenizer

PRIVATE = range(0xE000, 0xF900)
"""Code points without meaning, some of which no text of a chat uses: they mark its contents."""
DUMMY = "answer"
WAYS: tuple[Callable[[str], str], ...] = (
    str, str.strip, str.lstrip, str.rstrip, lambda text: text.strip("\n"),
    lambda text: text.lstrip("\n"),
)  # fmt: skip
"""What templates do to the outer white space of contents."""


@dataclass(frozen=True)
class Piece:
    """Part of a rendered chat that becomes ids by itself."""

    text: str
    control: bool = False
    """Whether it is the spelling of a control token, written by the template."""
    answer: int | None = None
    """Number of the message whose answer or end it is; None: not supervised."""


@dataclass(frozen=True)
class Encoded:
    """A chat as ids; `answer[i]` is the number of the message that id i is the answer of, or -1."""

    ids: list[int]
    answer: list[int]


class Template:
    """The chat template of a tokenizer: messages to text, pieces and ids.

    Control tokens that the template writes cut the text of a chat into parts; each is encoded as
    ordinary text, so what a message spells stays text. Where an answer begins inside of a part, the
    ids before it have to be those of the prompt alone, as a model gets them that is asked: where
    the encoded part begins otherwise, it is encoded in two. So a prompt's ids always are the
    beginning of the chat's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """RequestError where the tokenizer has no template, or one that cannot be read."""
        if tokenizer.template is None:
            raise RequestError(
                "the tokenizer has no chat template; give one with data.template=FILE."
            )
        self.tokenizer = tokenizer
        self._compiled = compiled(tokenizer.template)
        spellings = sorted(tokenizer.control, key=len, reverse=True)
        pattern = "|".join(map(re.escape, spellings))
        self._control = re.compile(f"({pattern})")
        self._end = re.compile(rf"\s*(?:{pattern})")

    def render(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        """The text of a chat; RequestError, with the template's reason, where it refuses one."""
        try:
            return self._compiled.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=generation_prompt,
                tools=None,
                documents=None,
                **self.tokenizer.special,
            )
        except Exception as error:  # the template is a program: it may fail in any way
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RequestError(f"the chat template refuses this chat: {reason}.") from error

    def pieces(self, messages: Sequence[Message]) -> list[Piece]:
        """The rendered text in pieces; RequestError where the answers in it cannot be found."""
        found: list[Piece] = []
        text, ending = "", None
        for part, number in list(self._regions(messages)):
            if number is None:
                if ending is not None:
                    close = self._end.match(part)
                    if close is None:
                        break
                    found += self._closing(close.group(), ending)
                    part, ending = part[close.end() :], None
                for run in self._control.split(part):
                    if self._control.fullmatch(run):
                        found += [*_plain(text), Piece(run, control=True)]
                        text = ""
                    else:
                        text += run
            elif messages[number]["role"] == "assistant":
                if ending is not None:
                    break
                lead = self._lead if text.endswith(self._lead) else ""
                before = text[: len(text) - len(lead)]
                found += [*_plain(before), *_plain(lead + part, number)]
                text, ending = "", number
            else:
                text += part
        if ending is not None:
            raise _hidden("no control token follows an answer, so a model could not learn to end")
        return [*found, *_plain(text)]

    @functools.cached_property
    def _lead(self) -> str:
        """White space that the template writes before an answer, but not when it asks for one."""
        asked = [{"role": "user", "content": "question"}]
        turn = [*asked, {"role": "assistant", "content": DUMMY}]
        try:
            whole, prompt = self.render(turn), self.render(asked, generation_prompt=True)
        except RequestError:
            return ""  # such short chats are not for it; those that are will tell
        before = whole[: whole.rindex(DUMMY)] if DUMMY in whole else ""
        lead = before.removeprefix(prompt)
        return lead if before.startswith(prompt) and not lead.strip() else ""

    def _closing(self, text: str, number: int) -> list[Piece]:
        """White space and the control token right after an answer: the model writes them too."""
        control = self._control.search(text)
        assert control is not None
        return [
            *_plain(text[: control.start()], number),
            Piece(control.group(), control=True, answer=number),
        ]

    def _regions(self, messages: Sequence[Message]) -> Iterator[tuple[str, int | None]]:
        """The rendered text as (text, number of the message whose content it is, if any)."""
        texts = [message["content"] for message in messages]
        plain = self.render(messages)
        opening, closing = _unused([*texts, plain, self.tokenizer.template or ""])
        mark = re.compile(f"{opening}(\\d+){opening}|{closing}(\\d+){closing}")
        # Some templates strip contents: then the stripped ones are what the chat is made of.
        for contents in _stripped(messages):
            marked = self.render([
                {**m, "content": f"{opening}{n}{opening}{text}{closing}{n}{closing}"}
                for n, (m, text) in enumerate(zip(messages, contents, strict=True))
            ])  # fmt: skip
            if mark.sub("", marked) == plain:
                break
        else:
            raise _hidden("it changes the text of messages")
        pieces = mark.split(marked)
        inside: int | None = None
        seen: list[int] = []
        for text, begins, ends in zip(
            pieces[::3], [*pieces[1::3], None], [*pieces[2::3], None], strict=True
        ):
            if inside is not None and text != contents[inside]:
                raise _hidden("it changes the text of messages")
            if text or inside is not None:
                yield text, inside
            if begins is not None:
                if inside is not None:
                    raise _hidden("it writes one message inside of another")
                inside = int(begins)
                seen.append(inside)
            elif ends is not None:
                if inside != int(ends):
                    raise _hidden("it cuts the text of messages")
                inside = None
        answers = [n for n, m in enumerate(messages) if m["role"] == "assistant"]
        if [n for n in seen if n in answers] != answers:
            raise _hidden("it leaves answers out, repeats them or changes their order")

    def encode(self, messages: Sequence[Message]) -> Encoded:
        """Ids of a chat, and which of them are answers and the tokens that end those."""
        return self._ids(self.pieces(messages))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids up to where the assistant's next answer begins, as in a chat that has it."""
        number = len(messages)
        pieces = self.pieces([*messages, {"role": "assistant", "content": DUMMY}])
        first = next(i for i, piece in enumerate(pieces) if piece.answer == number)
        return self._ids(pieces[:first]).ids

    @functools.cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer: the tokenizer's, and the one that this template writes there."""
        turn = [{"role": "user", "content": "question"}, {"role": "assistant", "content": DUMMY}]
        ends = [p.text for p in self.pieces(turn) if p.control and p.answer is not None]
        own = [self.tokenizer.control[spelling] for spelling in ends]
        return tuple(dict.fromkeys([*own, *self.tokenizer.end_ids]))

    def _ids(self, pieces: Sequence[Piece]) -> Encoded:
        ids: list[int] = []
        answer: list[int] = []
        parts = [list(run) for _, run in itertools.groupby(pieces, lambda piece: piece.control)]
        encoded = iter(self.tokenizer.encode_batch(
            [text for part in parts if not part[0].control for text in _texts(part)]
        ))  # fmt: skip
        for part in parts:
            for piece, new in self._parted(part, encoded):
                ids += new
                answer += [-1 if piece.answer is None else piece.answer] * len(new)
        return Encoded(ids, answer)

    def _parted(
        self, part: Sequence[Piece], encoded: Iterator[list[int]]
    ) -> Iterator[tuple[Piece, list[int]]]:
        """Pieces between two control tokens, or a run of such, with the ids of each."""
        if part[0].control:
            yield from ((piece, [self.tokenizer.control[piece.text]]) for piece in part)
            return
        whole = next(encoded)
        if part[0].answer == part[-1].answer:
            yield part[0], whole
            return
        before, own = next(encoded), next(encoded)
        yield part[0], before
        n = len(before)
        yield part[-1], whole[n:] if whole[:n] == before else own


def _texts(part: Sequence[Piece]) -> list[str]:
    """What to encode of the pieces between two control tokens: all, and what an answer parts."""
    before = "".join(piece.text for piece in part if piece.answer is None)
    own = "".join(piece.text for piece in part if piece.answer is not None)
    return [before + own, before, own] if before and own else [before + own]


def _stripped(messages: Sequence[Message]) -> Iterator[list[str]]:
    """Contents as they are, and with outer white space stripped in every way a template may do it.

    Ways go by roles: all messages alike first.
    """
    roles = sorted({message["role"] for message in messages})
    alike = [(way,) * len(roles) for way in WAYS]
    seen: list[list[str]] = []
    for chosen in (*alike, *itertools.product(WAYS, repeat=len(roles))):
        ways = dict(zip(roles, chosen, strict=True))
        contents = [ways[message["role"]](message["content"]) for message in messages]
        if contents not in seen:
            seen.append(contents)
            yield contents


def _plain(text: str, answer: int | None = None) -> list[Piece]:
    return [Piece(text, answer=answer)] if text else []


def _hidden(reason: str) -> RequestError:
    return RequestError(
        f"the answers cannot be found in what the chat template writes: {reason}; give another "
        "template with data.template=FILE."
    )


def _unused(texts: Sequence[str]) -> tuple[str, str]:
    """Two characters that are in none of these texts."""
    used = set().union(*texts)
    free = (chr(code) for code in PRIVATE if chr(code) not in used)
    return next(free), next(free)
