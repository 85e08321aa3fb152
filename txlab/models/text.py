"""Text in, text out: generation with a tokenizer, streaming, and texts that stop a row."""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txlab.core.errors import RequestError
from txlab.data.tokenizer import Tokenizer
from txlab.models.generate import generate
from txlab.models.model import Model
from txlab.models.sampling import Sampling

OnText = Callable[[int, str], None]
"""Called with (row, text) as text becomes final; the pieces of a row add up to its answer."""


@dataclass
class Answer:
    """One row's answer."""

    text: str
    """The new text, without end token and without the stop text."""
    tokens: list[int]
    """The new tokens, all of them."""
    logprobs: list[float]
    """Log-probability of each new token under the model itself."""
    reason: str
    """Why the row ended: `end token`, `stop`, `length` or `context full`."""


class Stream:
    """Turns one row's tokens into text as early as it is final.

    A stop text that is complete before token `at_least` is text like any other.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), *, at_least: int = 0
    ) -> None:
        self.text = ""
        """The answer so far; final only up to `sent`."""
        self.sent = 0
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._at_least = at_least
        self._count = 0
        # A character's bytes may be spread over tokens.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        """The text that one more token makes final."""
        self._count += 1
        return self._grow(self._decoder.decode(self._tokenizer.decode_bytes([token])))

    def close(self) -> str:
        """The text that is final now that no more tokens come."""
        return "" if self.stopped else self._grow(self._decoder.decode(b"", final=True), last=True)

    def _grow(self, piece: str, *, last: bool = False) -> str:
        before = len(self.text)
        self.text += piece
        # Those that end in what is new: all others have been passed over.
        starts = [(stop, max(self.sent, before - len(stop) + 1)) for stop in self._stop]
        ends = [at for stop, start in starts if (at := self.text.find(stop, start)) >= 0]
        if ends and self._count >= self._at_least:
            self.stopped = True
            self.text = self.text[: min(ends)]
        final = len(self.text) if last or self.stopped else len(self.text) - self._held()
        new, self.sent = self.text[self.sent : final], final
        return new

    def _held(self) -> int:
        """Characters at the end that may turn out to begin a stop text."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for n in range(min(longest, len(self.text) - self.sent), 0, -1):
            if any(stop.startswith(self.text[-n:]) for stop in self._stop):
                return n
        return 0


def generate_text(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[str | Sequence[int]],
    sampling: Sampling,
    *,
    end_ids: Sequence[int] | None = None,
    on_text: OnText | None = None,
    compiled: bool = False,
) -> list[Answer]:
    """Continue every prompt; row i * n + j is answer j to prompt i.

    A text begins a document, so it starts with the `bos` token; where there is none, an empty one
    starts with the `eos` token, which the document before ends with. Ids (of a chat) are taken as
    they are. `end_ids` end a row; None: the tokenizer's. Control tokens that end nothing, and ids
    that the tokenizer does not have, are never drawn. `compiled`: as `generate`.
    """
    if tokenizer.vocab_size > model.dims.vocab_size:
        raise RequestError(
            f"the tokenizer has {tokenizer.vocab_size} ids, but the model's embedding only "
            f"{model.dims.vocab_size} rows: they do not belong together."
        )
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    encoded = iter(tokenizer.encode_batch([p for p in prompts if isinstance(p, str)]))
    eos = [tokenizer.eos_id]
    ids = [([*bos, *next(encoded)] or eos) if isinstance(p, str) else list(p) for p in prompts]
    ends = tokenizer.end_ids if end_ids is None else end_ids
    least = sampling.min_new_tokens
    streams = [
        Stream(tokenizer, sampling.stop, at_least=least) for _ in range(len(ids) * sampling.n)
    ]

    def emit(row: int, text: str) -> None:
        if text and on_text is not None:
            on_text(row, text)

    def on_token(row: int, token: int) -> bool:
        emit(row, streams[row].add(token))
        return streams[row].stopped

    spare = range(tokenizer.vocab_size, model.dims.vocab_size)
    idle = [i for i in tokenizer.control.values() if i not in ends]
    found = generate(
        model,
        ids,
        sampling,
        end_ids=list(ends),
        pad_id=tokenizer.pad_id,
        forbidden=[*idle, *spare],
        on_token=on_token,
        compiled=compiled,
    )
    for row, stream in enumerate(streams):
        emit(row, stream.close())
    return [
        Answer(stream.text, made.tokens, made.logprobs, made.reason)
        for stream, made in zip(streams, found, strict=True)
    ]
