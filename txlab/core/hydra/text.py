"""Text as Hydra's grammar must see it to hand it on letter by letter."""

import re

from hydra.core.override_parser.types import Quote, QuotedString

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_WORDS = {"null", "true", "false", "nan", "inf"}


def quoted(value: str, *, literal: bool = False) -> str:
    """`value` as one Hydra string, quoted where its grammar would read something else.

    `literal`: a `${...}` in it is text as well; elsewhere it stays an interpolation.
    """
    if literal:
        value = re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return QuotedString(value, Quote.single).with_quotes()


def is_quoted(value: str) -> bool:
    """Whether the whole value is one quoted Hydra string."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return False
    quote = value[0]
    return re.fullmatch(rf"{quote}(?:[^{quote}\\]|\\.)*{quote}", value, re.DOTALL) is not None
