"""Unigram language model tokenizer, trained and run by the `tokenizers` library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txlab.data.tokenizer.control import CONTROL, UNKNOWN
from txlab.data.tokenizer.fallback import BYTES, Unseen, byte_tokens, joiner
from txlab.data.tokenizer.learning import alphabet, learn, within
from txlab.data.tokenizer.tokenizer import tokenizer
from txlab.data.tokenizer.trained import Trained, specials, splitter

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

DIGITS = 4
"""Digits after the point that log-probabilities keep. The library's training adds up in an order
that is another one each time, so that later digits differ; rounded and sorted, they do not."""
ROOM = 2 << 20
"""Bytes that different pieces may take: each is gone through about 40 times."""


@tokenizer("unigram")
class Unigram(Trained):
    """Unigram language model (Kudo 2018): the division of a word that is most probable.

    The alphabet is the characters of the training text; others are spelled in bytes, or unknown.
    Spaces are characters as all others, nothing is normalised.
    """

    @dataclass
    class Config(Trained.Config):
        unseen: Unseen = Unseen.bytes
        """What becomes of characters outside of the alphabet: bytes, or unknown."""
        alphabet: int | None = None
        """The most characters to keep, frequent ones first; None: all that occur."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require((self.alphabet or 1) > 0, "alphabet", "a number above 0, or null")
            control = len(CONTROL) + 1 + len(self.control)
            least = control + 1 + (BYTES if self.unseen == Unseen.bytes else 0)
            self.require(
                self.vocab_size >= least,
                "vocab_size",
                f"at least {least}: {control} control tokens, bytes if they are wanted, one more",
            )

    kind = "Unigram"
    room = ROOM

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: Unigram.Config = config

    def _may_not_know(self) -> bool:
        return True  # the library's model has to have the token, even if bytes are there

    def _learn(self, counts: Mapping[str, int], letters: set[str]) -> "Library":
        from tokenizers import Tokenizer as Library
        from tokenizers import models, trainers

        control, falls_back = self._spellings(), self.config.unseen == Unseen.bytes
        spare = byte_tokens() if falls_back else []
        room = self.config.vocab_size - len(control) - len(spare)
        chosen = alphabet(counts, letters, self.config.alphabet, room)
        trainer = trainers.UnigramTrainer(
            vocab_size=room + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
        )
        found: dict[str, float] = {}
        if kept := within(counts, {*chosen}):
            found = dict(learn(models.Unigram(), trainer, kept)["vocab"])
            found.pop(UNKNOWN)
        model = models.Unigram(
            [(token, 0.0) for token in (*control, *spare)] + _canonical(found, chosen)[:room],
            len(CONTROL),
            falls_back,
        )
        library = Library(model)
        library.add_special_tokens(specials(control))
        library.pre_tokenizer = splitter()
        library.decoder = joiner()
        return library

    @classmethod
    def _fields(cls, parts: Mapping[str, Any]) -> dict[str, Any]:
        return {} if parts["model"]["byte_fallback"] else {"unseen": Unseen.unknown}

    @classmethod
    def _foreign(cls, parts: Mapping[str, Any]) -> str | None:
        problem = super()._foreign(parts)
        if problem:
            return problem
        if parts.get("normalizer") is not None:
            return "it normalises text"
        tokens = {token for token, _ in parts["model"]["vocab"]}
        if parts["model"].get("byte_fallback") and not {*byte_tokens()} <= tokens:
            return "it lacks some of the 256 bytes"
        if UNKNOWN not in tokens:
            return f"it has no {UNKNOWN}"
        return None


def _canonical(found: Mapping[str, float], letters: Sequence[str]) -> list[tuple[str, float]]:
    """Tokens with log-probabilities, the same in each training: rounded, in one order.

    All letters are among them. The library gives those that it would have let go the lowest score
    and a ten-thousandth more for each, in an order that is another one each time.
    """
    least = min(found.values(), default=0.0)
    rare = least + len(letters) * 10**-DIGITS
    scores = {token: score for token, score in found.items() if len(token) > 1 or score > rare}
    scores |= {letter: least for letter in letters if letter not in scores}
    rounded = [(token, round(score, DIGITS)) for token, score in scores.items()]
    # Letters come first, as they must not be cut off; the rest by probability.
    return sorted(rounded, key=lambda entry: (len(entry[0]) > 1, -entry[1], entry[0]))
