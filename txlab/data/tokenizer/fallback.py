"""Characters outside of an alphabet: spelled in bytes that have tokens, or unknown."""

from enum import StrEnum
from typing import Any

BYTES = 256


class Unseen(StrEnum):
    """What becomes of a character that the vocabulary does not have."""

    bytes = "bytes"
    """It is spelled in UTF-8 with 256 tokens for bytes: every text comes back."""
    unknown = "unknown"
    """It becomes the token <|unk|>, which stands for no text; a run of them may be one token."""


def byte_tokens() -> list[str]:
    """The spelling of each byte's token; no piece of text is spelled so, since < ends one."""
    return [f"<0x{byte:02X}>" for byte in range(BYTES)]


def joiner() -> Any:
    """The library's decoder for tokens that stand one after another, bytes among them."""
    from tokenizers import decoders

    return decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
