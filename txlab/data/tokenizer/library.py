"""What tokenizers that the `tokenizers` library runs have in common: ids, bytes, files."""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlab.core.errors import RequestError
from txlab.data.cache import whole
from txlab.data.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

SECTION = "txlab"
"""Key of tokenizer.json under which stands what the library's own format has no place for."""
REPLACEMENT = "\u2581"
"""What SentencePiece writes for a space."""


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
        pieces = [list(self.pieces(checked(text))) for text in texts]
        flat = [piece for of_text in pieces for piece in of_text]
        encodings = iter(self._library.encode_batch_fast(flat, add_special_tokens=False))
        return [[i for _ in of_text for i in next(encodings).ids] for of_text in pieces]

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
        parts.pop("version", None)
        self._fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        added = {entry["id"]: entry for entry in parts["added_tokens"]}
        self.control = {entry["content"]: i for i, entry in added.items() if entry["special"]}
        vocabulary = library.get_vocab(with_added_tokens=True)
        self._size = max(vocabulary.values()) + 1
        self.byte_level = "ByteLevel" in types(parts["decoder"])
        self._table = [b""] * self._size
        for token, i in vocabulary.items():
            if i in added:
                self._table[i] = b"" if added[i]["special"] else token.encode()
            else:
                self._table[i] = self._bytes(token, types(parts["decoder"]))

    def _bytes(self, token: str, decoder: Sequence[str]) -> bytes:
        """The text of a vocabulary entry, as it stands inside of a text."""
        letters = byte_letters()
        if self.byte_level and all(c in letters for c in token):
            return bytes(letters[c] for c in token)
        if "ByteFallback" in decoder and len(token) == 6 and token.startswith("<0x"):
            return bytes.fromhex(token[3:5])
        if "WordPiece" in decoder:
            return (token[2:] if token.startswith("##") else " " + token).encode()
        return token.replace(REPLACEMENT, " ").encode()

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


def types(part: Mapping[str, Any] | None) -> list[str]:
    """The `type` of a part of tokenizer.json and of all parts inside of it."""
    if not isinstance(part, Mapping):
        return []
    inner = [entry for key in ("decoders", "pretokenizers") for entry in part.get(key, [])]
    return [str(part.get("type")), *(kind for entry in inner for kind in types(entry))]


@functools.cache
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
