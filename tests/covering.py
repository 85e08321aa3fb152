"""Few cases that together hold every combination of t values: a covering array, greedily made."""

import itertools
import random
from collections.abc import Collection, Sequence

Part = tuple[tuple[int, int], ...]
"""Values of some factors, as (factor, index of the value)."""


def covering(
    sizes: Sequence[int], strength: int, forbidden: Collection[Part] = (), seed: int = 0
) -> list[tuple[int, ...]]:
    """Cases (an index for each factor) that hold every choice of `strength` values at once.

    No case holds one of the `forbidden` pairs, and choices that do are left out. The same
    arguments give the same cases.
    """
    draw = random.Random(seed)
    refused = frozenset(forbidden)
    groups = list(itertools.combinations(range(len(sizes)), strength))
    todo = {
        part
        for group in groups
        for values in itertools.product(*(range(sizes[i]) for i in group))
        if not _holds(part := tuple(zip(group, values, strict=True)), refused)
    }
    cases: list[tuple[int, ...]] = []
    for part in sorted(todo):
        if part not in todo:
            continue
        tries = (_fill(part, sizes, refused, draw) for _ in range(20))
        scored = [(len(todo & _parts(case, groups)), case) for case in tries if case is not None]
        if not scored:
            raise ValueError(f"no case without a forbidden pair holds {part}")
        case = max(scored)[1]
        cases.append(case)
        todo -= _parts(case, groups)
    return cases


def _fill(
    part: Part, sizes: Sequence[int], refused: frozenset[Part], draw: random.Random
) -> tuple[int, ...] | None:
    """A random case that holds `part`; None where what is left to choose is all refused."""
    case = dict(part)
    for i in draw.sample(range(len(sizes)), len(sizes)):
        if i in case:
            continue
        values = [
            v
            for v in range(sizes[i])
            if not any(tuple(sorted([(i, v), other])) in refused for other in case.items())
        ]
        if not values:
            return None
        case[i] = draw.choice(values)
    return tuple(case[i] for i in range(len(sizes)))


def _holds(part: Part, refused: frozenset[Part]) -> bool:
    return any(pair in refused for pair in itertools.combinations(part, 2))


def _parts(case: Sequence[int], groups: Sequence[tuple[int, ...]]) -> set[Part]:
    return {tuple((i, case[i]) for i in group) for group in groups}
