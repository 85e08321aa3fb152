"""Bytes as tokens: a vocabulary that needs no training."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from txlab.data.tokenizer.bpe import BPE
from txlab.data.tokenizer.control import CONTROL
from txlab.data.tokenizer.library import checked
from txlab.data.tokenizer.reading import byte_letters
from txlab.data.tokenizer.tokenizer import tokenizer
from txlab.data.tokenizer.trained import Trained, specials


@tokenizer("byte")
class Byte(Trained):
    """Each byte of the UTF-8 text is a token (Xue et al. 2022): any text survives.

    Ids are those of the control tokens, then the 256 bytes in order. Nothing is learned.
    """

    learns = False

    @dataclass
    class Config(Trained.Config):
        vocab_size: int = 256 + len(CONTROL)
        """Always 256 and the number of control tokens, also where more are wanted."""

        def __post_init__(self) -> None:
            super().__post_init__()
            size = 256 + len(CONTROL) + len(self.control)
            self.require(
                self.vocab_size >= 256 + len(CONTROL),
                "vocab_size",
                f"{size}: all bytes and {size - 256} control tokens",
            )
            self.vocab_size = size

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: Byte.Config = config

    def train(self, texts: Iterable[str]) -> None:
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, models, pre_tokenizers

        letters = sorted(byte_letters().items(), key=lambda entry: entry[1])
        tokens = [*self._spellings(), *(letter for letter, _ in letters)]
        library = Library(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
        library.add_special_tokens(specials(self._spellings()))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        library.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
        self._use(library)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        first = self.vocab_size - 256
        rows = [np.frombuffer(checked(text).encode(), dtype=np.uint8) for text in texts]
        return [(row.astype(np.int32) + first).tolist() for row in rows]

    @classmethod
    def _foreign(cls, parts: Mapping[str, Any]) -> str | None:
        problem = BPE._foreign(parts)
        if problem:
            return problem
        if parts["model"]["merges"]:
            return "it merges bytes"
        letters, vocabulary = byte_letters(), parts["model"]["vocab"]
        first = len(vocabulary) - 256
        ordered = all(vocabulary.get(letter) == first + byte for letter, byte in letters.items())
        return None if ordered else "its bytes are in another order"
