"""The slot of tokenizers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import ClassVar, Self

import torch
from jaxtyping import Int
from torch import Tensor

from txlab.core.config import Component
from txlab.core.slot import Slot
from txlab.data.cache import absolute


class Tokenizer:
    """Text to token ids and back; knows the control tokens, and never makes one out of text.

    A tokenizer starts untrained: `train` it, or make a trained one with `load`.
    """

    trainable: ClassVar[bool] = True
    """Whether `train` makes one; else it only comes from a file."""
    learns: ClassVar[bool] = True
    """Whether the texts it is trained on decide its ids."""

    bos_id: int | None
    """Begins a document; None: documents begin with their text."""
    eos_id: int
    """Ends a document."""
    pad_id: int
    """Fills a row; never supervised. May be `eos_id`: padding is told by lengths, never by id."""
    control: Mapping[str, int]
    """Ids that stand for no text, by spelling: these three and markers such as those of turns."""
    end_ids: tuple[int, ...]
    """Ids that end a document or an answer."""
    special: Mapping[str, str]
    """Spellings by the names that chat templates use: bos_token, eos_token, pad_token ..."""
    template: str | None
    """Chat template (Jinja text) that belongs to it; saved with it."""
    unk_id: int | None = None
    """Stands for text that the vocabulary cannot express; None: it expresses every text."""
    exact: bool = True
    """Whether every text comes back from its ids; else its class says what is lost."""
    sampled: int = 1
    """Training counted pieces that occur less often than this by a sample of them; 1: none."""

    @dataclass
    class Config(Component):
        """Fields shared by all tokenizers."""

        vocab_size: int = 4096
        """Tokens wanted, control tokens included; a small corpus may give fewer."""
        path: str | None = None
        """A trained tokenizer.json to use instead of training one; what the others say is in it."""
        control: list[str] = field(default_factory=list)
        """Further control tokens for a new one; data adds those that it needs, such as a mask."""

        def __post_init__(self) -> None:
            self.require(self.vocab_size > 0, "vocab_size", "a number above 0")
            self.path = absolute(self.path)
            self.require(
                all(self.control) and len({*self.control}) == len(self.control),
                "control",
                "spellings, each once",
            )

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the real one after training."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides the ids; the same after save and load."""
        raise NotImplementedError

    def train(self, texts: Iterable[str]) -> None:
        """Learn the vocabulary; the same texts give the same one on every machine."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone; the spelling of a control token in it stays ordinary text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, faster."""
        raise NotImplementedError

    def normalised(self, text: str) -> str:
        """The text as it is before it is divided into tokens: the same, where nothing is lost."""
        return text

    def pieces(self, text: str) -> Iterator[str]:
        """The text in parts of bounded length whose ids, one after another, are the text's ids."""
        yield text

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes the ids stand for, each as inside of a text; control tokens stand for none."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """The text the ids stand for; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def token_bytes(self) -> Int[Tensor, " v"]:
        """Bytes of text that each token stands for; 0 for control tokens."""
        return torch.tensor([len(self.decode_bytes([i])) for i in range(self.vocab_size)])

    def save(self, file: str | PathLike[str]) -> None:
        """Write the self-contained tokenizer.json."""
        raise NotImplementedError

    @classmethod
    def load(cls, file: str | PathLike[str]) -> Self:
        """The tokenizer that `save` wrote; RequestError where the file holds none of this kind."""
        raise NotImplementedError

    @classmethod
    def from_path(cls, config: Config) -> Self:
        """The tokenizer at `config.path`, as the other fields want it."""
        assert config.path is not None
        return cls.load(config.path)


tokenizer = Slot("tokenizer", Tokenizer, doc="Text to token ids and back.")
