"""Byte-pair encoding over bytes or characters, run by the `tokenizers` library."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from txlab.data.tokenizer.control import CONTROL
from txlab.data.tokenizer.fallback import BYTES, Unseen, byte_tokens, joiner
from txlab.data.tokenizer.learning import alphabet, learn, within
from txlab.data.tokenizer.reading import byte_letters, types
from txlab.data.tokenizer.tokenizer import tokenizer
from txlab.data.tokenizer.trained import Trained, specials, splitter

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class Level(StrEnum):
    """What merges start from."""

    byte = "byte"
    """The 256 bytes: nothing is unknown."""
    char = "char"
    """The characters of the training text."""


@tokenizer("bpe")
class BPE(Trained):
    """Byte-pair encoding (Sennrich et al. 2016, Radford et al. 2019): any text survives by default.

    At level byte the alphabet is the 256 bytes; at level char it is the characters of the training
    text, and others are spelled in bytes, or unknown. Nothing is normalised. `definition.py` says
    what is learned and how it is applied.
    """

    @dataclass
    class Config(Trained.Config):
        min_frequency: int = 2
        """Times a pair must occur to be merged."""
        level: Level = Level.byte
        """byte: merges start from the 256 bytes; char: from the characters of the text."""
        unseen: Unseen = Unseen.bytes
        """At level char, what becomes of characters outside of the alphabet: bytes, or unknown."""
        alphabet: int | None = None
        """At level char, the most characters to keep, frequent ones first; None: all that occur."""

        def __post_init__(self) -> None:
            super().__post_init__()
            chars = self.level == Level.char
            both = chars and self.unseen == Unseen.unknown
            self.require(chars or self.unseen == Unseen.bytes, "unseen", "bytes at level=byte")
            self.require(chars or self.alphabet is None, "alphabet", "null at level=byte")
            self.require((self.alphabet or 1) > 0, "alphabet", "a number above 0, or null")
            control = len(CONTROL) + len(self.control) + both
            least, what = (control + 1, "one character") if both else (control + 256, "all bytes")
            self.require(
                self.vocab_size >= least,
                "vocab_size",
                f"at least {least}: {what} and {control} control tokens",
            )
            self.require(self.min_frequency > 0, "min_frequency", "a number above 0")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: BPE.Config = config

    def _may_not_know(self) -> bool:
        return self.config.level == Level.char and self.config.unseen == Unseen.unknown

    def _learn(self, counts: Mapping[str, int], letters: set[str]) -> "Library":
        from tokenizers import Tokenizer as Library

        chars = self.config.level == Level.char
        model = self._chars(counts, letters) if chars else self._bytes_of(counts)
        library = Library(model)
        library.add_special_tokens(specials(self._spellings()))
        parts = _characters() if chars else _bytewise()
        library.pre_tokenizer, library.decoder = parts  # pyright: ignore[reportAttributeAccessIssue]
        return library

    def _bytes_of(self, counts: Mapping[str, int]) -> Any:
        """The library's model over letters that stand for bytes."""
        from tokenizers import models

        letter = {byte: letter for letter, byte in byte_letters().items()}
        spelled: Counter[str] = Counter()
        for piece, n in counts.items():
            spelled["".join([letter[byte] for byte in piece.encode()])] += n
        trainer = self._trainer(self.config.vocab_size, sorted(byte_letters()))
        found = learn(models.BPE(), trainer, spelled)
        return models.BPE(vocab=found["vocab"], merges=_pairs(found))

    def _chars(self, counts: Mapping[str, int], letters: set[str]) -> Any:
        """The library's model over characters, with the byte tokens right after control tokens."""
        from tokenizers import models

        config, first = self.config, len(self._spellings())
        spare = BYTES if config.unseen == Unseen.bytes else 0
        room = config.vocab_size - spare
        chosen = alphabet(counts, letters, config.alphabet, room - first)
        found = learn(models.BPE(), self._trainer(room, chosen), within(counts, {*chosen}))
        vocabulary = {t: i if i < first else i + spare for t, i in found["vocab"].items()}
        vocabulary |= {t: first + i for i, t in enumerate(byte_tokens()[:spare])}
        unknown = {} if spare else {"unk_token": self._spellings()[len(CONTROL)]}
        return models.BPE(
            vocab=vocabulary, merges=_pairs(found), byte_fallback=bool(spare), **unknown
        )

    def _trainer(self, size: int, letters: list[str]) -> Any:
        from tokenizers import trainers

        return trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=self.config.min_frequency,
            special_tokens=self._spellings(),
            initial_alphabet=letters,
            show_progress=False,
        )

    @classmethod
    def _fields(cls, parts: Mapping[str, Any]) -> dict[str, Any]:
        if "ByteLevel" in types(parts["decoder"]):
            return {}
        falls_back = parts["model"]["byte_fallback"]
        return {"level": Level.char, "unseen": Unseen.bytes if falls_back else Unseen.unknown}

    @classmethod
    def _foreign(cls, parts: Mapping[str, Any]) -> str | None:
        problem = super()._foreign(parts)
        if problem:
            return problem
        if parts.get("normalizer") is not None:
            return "it normalises text"
        vocabulary = parts["model"]["vocab"].keys()
        bytewise = "ByteLevel" in types(parts.get("decoder"))
        if bytewise and not byte_letters().keys() <= vocabulary:
            return "it lacks some of the 256 bytes"
        if parts["model"].get("byte_fallback") and not {*byte_tokens()} <= vocabulary:
            return "it lacks some of the 256 bytes"
        return None


def _bytewise() -> tuple[Any, Any]:
    """Pre-tokenizer and decoder of byte-level tokenizers."""
    from tokenizers import decoders, pre_tokenizers

    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([splitter(), letters]), decoders.ByteLevel()


def _characters() -> tuple[Any, Any]:
    """The same of those over characters."""
    return splitter(), joiner()


def _pairs(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(left, right) for left, right in model["merges"]]
