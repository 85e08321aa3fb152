"""Items with an answer that is known, to ask a model."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A held-out or training item to generate an answer to."""

    messages: Sequence[dict[str, str]]
    """The chat up to the answer: role and content of each message."""
    prompt_ids: list[int]
    """The same as the model gets it: what the answer's ids follow in training."""
    answer: str
    """The right answer."""
    length: int
    """Ids of the right answer in training, with those that end it."""
