"""What the parts of a tokenizer.json say about the bytes that its tokens stand for."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from txlab.data.tokenizer.fallback import byte_tokens

CLEANED = (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re")
"""Beginnings of words before which a decoder of WordPiece that cleans up writes no space."""
DIVIDING = {"Sequence", "Split", "ByteLevel", "Digits", "Punctuation", "UnicodeScripts"}
"""Pre-tokenizers that keep every character, unless they are told otherwise."""
REPLACEMENT = "\u2581"
"""What SentencePiece writes for a space."""


class Reading:
    """How a tokenizer.json is to be read: from its parts and its whole vocabulary."""

    def __init__(self, parts: Mapping[str, Any], vocabulary: Mapping[str, int]) -> None:
        self._decoder = types(parts["decoder"])
        self._spaces = REPLACEMENT in str(parts["decoder"])
        self._cleans = bool((parts["decoder"] or {}).get("cleanup"))
        self.byte_level = "ByteLevel" in self._decoder
        """Whether the letters of tokens stand for bytes."""
        model = parts["model"]
        self.unk_id: int | None = (
            model.get("unk_id")
            if model["type"] == "Unigram"
            else vocabulary.get(model.get("unk_token") or "")
        )
        """The id of what the vocabulary cannot express."""
        if self.byte_level:
            whole = byte_letters().keys() <= vocabulary.keys()
        else:
            whole = bool(model.get("byte_fallback")) and {*byte_tokens()} <= vocabulary.keys()
        kept = {"Sequence", "ByteLevel", "ByteFallback", "Fuse"}
        self.exact = (
            whole
            and parts["normalizer"] is None
            and {*self._decoder} <= kept
            and _keeps(parts["pre_tokenizer"])
        )
        """Whether every text comes back from its ids."""

    def bytes(self, token: str) -> bytes:
        """The text of a vocabulary entry, as it stands inside of a text."""
        letters = byte_letters()
        if self.byte_level and all(c in letters for c in token):
            return bytes(letters[c] for c in token)
        if "ByteFallback" in self._decoder and len(token) == 6 and token.startswith("<0x"):
            return bytes.fromhex(token[3:5])
        if "WordPiece" in self._decoder:
            joined = self._cleans and token.startswith(CLEANED)
            return (token[2:] if token.startswith("##") else " " * (not joined) + token).encode()
        return (token.replace(REPLACEMENT, " ") if self._spaces else token).encode()


def _keeps(part: Any) -> bool:
    """Whether a pre-tokenizer only divides text, without changing any of it or leaving some out."""
    said = json.dumps(part)
    changes = '"behavior": "Removed"' in said or '"add_prefix_space": true' in said
    return part is None or ({*types(part)} <= DIVIDING and not changes)


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
