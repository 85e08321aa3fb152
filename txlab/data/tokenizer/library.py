"""What tokenizers that the `tokenizers` library runs have in common: ids, bytes, files."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlab.core.errors import RequestError
from txlab.data.cache import whole
from txlab.data.tokenizer.reading import Reading
from txlab.data.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

SECTION = "txlab"
"""Key of tokenizer.json under which stands what the library's own format has no place for."""


class LibraryTokenizer(Tokenizer):
    """A tokenizer whose vocabulary and rules are the library's; `_use` sets it."""

    _model: "Library | None" = None

    @property
    def vocab_size(self) -> int:
        return self._size

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        divided = [list(self.pieces(checked(text))) for text in texts]
        flat = [piece for pieces in divided for piece in pieces]
        found = self._library.encode_batch_fast(flat, add_special_tokens=False)
        if len(found) == len(texts):
            return [encoding.ids for encoding in found]
        rest = iter(found)
        return [list(chain.from_iterable(next(rest).ids for _ in pieces)) for pieces in divided]

    def normalised(self, text: str) -> str:
        normaliser = self._library.normalizer
        return text if normaliser is None else normaliser.normalize_str(text)

    def decode(self, ids: Iterable[int]) -> str:
        if self._joins:
            return super().decode(ids)
        return self._library.decode(self._known(ids), skip_special_tokens=True)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        ids, table = self._known(ids), self._table
        return b"".join([table[i] for i in ids])

    def save(self, file: str | PathLike[str]) -> None:
        parts = self._library.to_str(pretty=False)
        section = self._section()
        if section:
            parts = json.dumps(json.loads(parts) | {SECTION: section}, ensure_ascii=False)
        with whole(Path(file)) as stream:
            stream.write(parts.encode())

    def _section(self) -> dict[str, Any]:
        """What to save beside the library's own fields."""
        raise NotImplementedError

    def _known(self, ids: Iterable[int]) -> list[int]:
        """The ids as a list; RequestError where one is outside of the vocabulary."""
        found = list(ids)
        for i in found:
            if not 0 <= i < self._size:
                raise RequestError(
                    f"token id {int(i)} is outside of the tokenizer's 0 to {self._size - 1}."
                )
        return found

    def _use(self, library: "Library") -> None:
        # Without this the library turns the spelling of a control token in a text into its id. It
        # is no part of the saved file, so it is set here, for trained and loaded ones alike.
        library.encode_special_tokens = True
        library.no_truncation()
        library.no_padding()
        self._model = library
        parts = json.loads(library.to_str())
        # The post-processor adds tokens only where one asks for them, which we do not.
        deciding = {k: v for k, v in parts.items() if k != "version"} | {"post_processor": None}
        self._fingerprint = hashlib.sha256(
            json.dumps(deciding, sort_keys=True).encode()
        ).hexdigest()
        added = {entry["id"]: entry for entry in parts["added_tokens"]}
        self.control = {entry["content"]: i for i, entry in added.items() if entry["special"]}
        vocabulary = library.get_vocab(with_added_tokens=True)
        self._size = max(vocabulary.values()) + 1
        reading = Reading(parts, vocabulary)
        self.byte_level, self.exact = reading.byte_level, reading.exact
        self.unk_id = None if reading.exact else reading.unk_id
        # The library's decoder joins what stands apart, and strips and cleans as it was made to.
        self._joins = reading.exact or reading.byte_level
        self._table = [b""] * self._size
        for token, i in vocabulary.items():
            if i not in added:
                self._table[i] = reading.bytes(token)
            elif not added[i]["special"]:
                self._table[i] = token.encode()

    @property
    def _library(self) -> "Library":
        if self._model is None:
            raise RuntimeError("the tokenizer is not trained yet: call train(texts) or load(file)")
        return self._model


def read(file: str | PathLike[str]) -> tuple["Library", dict[str, Any], dict[str, Any]]:
    """(library tokenizer, its fields, our section) of a tokenizer.json; RequestError otherwise."""
    from tokenizers import Tokenizer as Library

    try:
        text = Path(file).read_bytes().decode("utf-8")
    except OSError as error:
        raise RequestError(f"cannot read the tokenizer {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{file} is no tokenizer.json: it is no UTF-8.") from error
    try:
        parts = dict(json.loads(text))
        section = dict(parts.pop(SECTION, {}))
        library = Library.from_str(json.dumps(parts) if section else text)
    except Exception as error:  # the library raises bare Exception, with the reason in it
        raise RequestError(f"{file} is no tokenizer.json: {str(error).splitlines()[0]}.") from error
    return library, parts, section


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
