"""Byte-level byte-pair encoding, trained and run by the `tokenizers` library."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from txlab.core.errors import RequestError
from txlab.data.cache import whole
from txlab.data.tokenizer.tokenizer import Tokenizer, tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

CONTROL = ("<|bos|>", "<|eos|>", "<|pad|>")
"""The first ids, in this order. Letters and punctuation are never in one piece, so no merge of
ordinary text can spell one of these."""
PIECE = (
    r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]{1,48}| ?\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]{1,48}"
    r"|\s{1,48}(?!\S)|\s{1,48}"
)
"""Where merges stop. Bounded, so that text without any space costs no more than other text."""
SPACES = " \n\t\r"
SPAN = 1 << 18
"""Characters handed to the library at once."""


@tokenizer("bpe")
class BPE(Tokenizer):
    """Byte-level BPE (Sennrich et al. 2016, Radford et al. 2019): any text survives the round trip.

    The alphabet is the 256 bytes, nothing is normalised, nothing is unknown.
    """

    @dataclass
    class Config(Tokenizer.Config):
        min_frequency: int = 2
        """Times a pair must occur to be merged."""

        def __post_init__(self) -> None:
            super().__post_init__()
            least = 256 + len(CONTROL)
            self.require(self.vocab_size >= least, "vocab_size", f"at least {least}: all bytes")
            self.require(self.min_frequency > 0, "min_frequency", "a number above 0")

    bos_id, eos_id, pad_id = range(3)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config: BPE.Config = config
        self._model: Library | None = None

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
            special_tokens=list(CONTROL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        library.train_from_iterator(
            (p for text in texts for p in self.pieces(checked(text))), trainer
        )
        self._use(library)

    @property
    def vocab_size(self) -> int:
        return self._library.get_vocab_size(with_added_tokens=True)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        pieces = [list(self.pieces(checked(text))) for text in texts]
        flat = [piece for of_text in pieces for piece in of_text]
        encodings = iter(self._library.encode_batch_fast(flat, add_special_tokens=False))
        return [[i for _ in of_text for i in next(encodings).ids] for of_text in pieces]

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

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        ids, table = list(ids), self._table
        for i in ids:
            if not 0 <= i < len(table):
                raise RequestError(
                    f"token id {int(i)} is outside of the tokenizer's 0 to {len(table) - 1}."
                )
        return b"".join([table[i] for i in ids])

    def save(self, file: str | PathLike[str]) -> None:
        with whole(Path(file)) as stream:
            stream.write(self._library.to_str(pretty=False).encode())

    @classmethod
    def load(cls, file: str | PathLike[str]) -> Self:
        from tokenizers import Tokenizer as Library

        try:
            text = Path(file).read_bytes().decode("utf-8")
            library = Library.from_str(text)
        except OSError as error:
            raise RequestError(f"cannot read the tokenizer {file}: {error.strerror}.") from error
        except Exception as error:  # the library raises bare Exception, with the reason in it
            raise RequestError(
                f"{file} is no tokenizer.json: {str(error).splitlines()[0]}."
            ) from error
        problem = _foreign(json.loads(text))
        if problem:
            raise RequestError(
                f"{file} is no tokenizer of option 'bpe' ({problem}); train one by leaving "
                "tokenizer.path out."
            )
        self = cls(cls.Config(vocab_size=library.get_vocab_size(), path=str(file)))
        self._use(library)
        return self

    def _use(self, library: "Library") -> None:
        # Without this the library turns the spelling of a control token in a text into its id. It
        # is no part of the saved file, so it is set here, for trained and loaded ones alike.
        library.encode_special_tokens = True
        self._model = library
        parts = json.loads(library.to_str())
        parts.pop("version", None)
        self._fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        letters = byte_letters()
        vocabulary = library.get_vocab(with_added_tokens=True)
        self._table = [b""] * len(vocabulary)
        for token, i in vocabulary.items():
            if token not in CONTROL:
                self._table[i] = bytes(letters[c] for c in token)

    @property
    def _library(self) -> "Library":
        if self._model is None:
            raise RuntimeError("the tokenizer is not trained yet: call train(texts) or load(file)")
        return self._model


def byte_letters() -> dict[str, int]:
    """The byte that each letter of the byte-level alphabet stands for (Radford et al. 2019).

    Printable Latin-1 stands for itself, the other bytes for U+0100 and on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def checked(text: str) -> str:
    """The text itself; RequestError where it holds half a surrogate pair, which is no character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"character {error.start} of the text is U+{ord(text[error.start]):04X}, half of a "
            "surrogate pair: no text; repair the source."
        ) from error
    return text


def _foreign(parts: dict[str, Any]) -> str | None:
    """Why these parts of a tokenizer.json are not what `BPE` writes; None where they are."""
    model = parts.get("model") or {}
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}"
    if parts.get("normalizer") is not None:
        return "it normalises text"
    added = [(token["id"], token["content"]) for token in parts.get("added_tokens", [])]
    if added != list(enumerate(CONTROL)):
        return f"its first tokens are not {' '.join(CONTROL)}"
    if not byte_letters().keys() <= model["vocab"].keys():
        return "it lacks some of the 256 bytes"
    if sorted(model["vocab"].values()) != list(range(len(model["vocab"]))):
        return "its ids have gaps"
    return None
