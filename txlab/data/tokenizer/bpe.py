"""Byte-level byte-pair encoding, trained and run by the `tokenizers` library."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from types import MappingProxyType
from typing import Any, Self

from txlab.core.errors import RequestError
from txlab.data.tokenizer.control import CONTROL, END, SPECIAL, TEMPLATE
from txlab.data.tokenizer.library import LibraryTokenizer, byte_letters, checked, read
from txlab.data.tokenizer.tokenizer import Tokenizer, tokenizer

PIECE = (
    r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]{1,48}| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]{1,48}"
    r"|\s{1,48}(?!\S)|\s{1,48}"
)
"""Where merges stop. Bounded, so that text without any space costs no more than other text; letters
and punctuation are never in one piece, so no merge of ordinary text spells a control token."""
MOST = 1 << 24
"""Tokens at most: the library reserves memory for all of them first, and aborts without it."""
SPACES = " \n\t\r"
SPAN = 1 << 18
"""Characters handed to the library at once."""


@tokenizer("bpe")
class BPE(LibraryTokenizer):
    """Byte-level BPE (Sennrich et al. 2016, Radford et al. 2019): any text survives the round trip.

    The alphabet is the 256 bytes, nothing is normalised, nothing is unknown.
    """

    @dataclass
    class Config(Tokenizer.Config):
        min_frequency: int = 2
        """Times a pair must occur to be merged."""

        def __post_init__(self) -> None:
            super().__post_init__()
            least = 256 + len(CONTROL) + len(self.control)
            self.require(
                self.vocab_size >= least,
                "vocab_size",
                f"at least {least}: all bytes and {least - 256} control tokens",
            )
            taken = [spelling for spelling in self.control if spelling in CONTROL]
            self.require(not taken, "control", f"others than {' '.join(CONTROL)}")
            self.require(self.vocab_size <= MOST, "vocab_size", f"at most {MOST}")
            self.require(self.min_frequency > 0, "min_frequency", "a number above 0")

    bos_id, eos_id, pad_id = range(3)
    control = MappingProxyType({spelling: i for i, spelling in enumerate(CONTROL)})
    end_ids = (eos_id, CONTROL.index(END))
    special = SPECIAL

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: BPE.Config = config
        self.template = TEMPLATE

    def train(self, texts: Iterable[str]) -> None:
        from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
        from tokenizers import Tokenizer as Library

        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
            [
                pre_tokenizers.Split(Regex(PIECE), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        library.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
        trainer = trainers.BpeTrainer(
            vocab_size=self.config.vocab_size,
            min_frequency=self.config.min_frequency,
            special_tokens=[*CONTROL, *self.config.control],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        library.train_from_iterator(
            (p for text in texts for p in self.pieces(checked(text))), trainer
        )
        self._use(library)

    def pieces(self, text: str) -> Iterator[str]:
        """Cuts before white space that follows something else: merges stop there anyway."""
        start = 0
        while len(text) - start > SPAN:
            end = start + SPAN
            while end > start and not (text[end] in SPACES and not text[end - 1].isspace()):
                end -= 1
            # Without any such place the cut falls anywhere: still the same text, one merge apart.
            end = end if end > start else start + SPAN
            yield text[start:end]
            start = end
        yield text[start:]

    @classmethod
    def load(cls, file: str | PathLike[str]) -> Self:
        library, parts, section = read(file)
        problem = _foreign(parts)
        if problem:
            raise RequestError(
                f"{file} is no tokenizer of option 'bpe' ({problem}); train one by leaving "
                "tokenizer.path out, or take it as it is with tokenizer=pretrained."
            )
        self = cls(cls.Config(vocab_size=library.get_vocab_size(), path=str(file)))
        self.template = section.get("template", TEMPLATE)
        self._use(library)
        return self

    def _section(self) -> dict[str, Any]:
        return {} if self.template == TEMPLATE else {"template": self.template}


def _foreign(parts: dict[str, Any]) -> str | None:
    """Why these parts of a tokenizer.json are not what `BPE` writes; None where they are."""
    model = parts.get("model") or {}
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}"
    if parts.get("normalizer") is not None:
        return "it normalises text"
    added = [(token["id"], token["content"]) for token in parts.get("added_tokens", [])]
    first = len(CONTROL)
    if added[:first] != list(enumerate(CONTROL)):
        return f"its first tokens are not {' '.join(CONTROL)}"
    if not byte_letters().keys() <= model["vocab"].keys():
        return "it lacks some of the 256 bytes"
    if sorted(model["vocab"].values()) != list(range(len(model["vocab"]))):
        return "its ids have gaps"
    return None
