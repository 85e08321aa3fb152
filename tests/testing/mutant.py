"""Options that are broken on purpose, each with the check that must catch it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A broken class, the check that catches it, and words its message must have."""

    cls: type
    check: str
    says: str


MUTANTS: list[Mutant] = []


def caught_by(check: str, says: str) -> Callable[[type[Any]], type[Any]]:
    """Mark a class as one that `check` refuses with a message that contains `says`."""

    def mark(cls: type[Any]) -> type[Any]:
        MUTANTS.append(Mutant(cls, check, says))
        return cls

    return mark
