"""The names that somebody may have meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.5) -> str:
    """A question, with a space before it, for the `n` of `known` nearest to `name`; or nothing.

    `cutoff`: how alike they have to be, from 0 to 1, as of `difflib.get_close_matches`.
    """
    near = difflib.get_close_matches(name, list(known), n=n, cutoff=cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""
