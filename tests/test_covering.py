"""The covering array holds what it says: all choices but those with a forbidden pair."""

import itertools

import pytest

from tests.covering import covering

SIZES = (4, 3, 2, 3, 2)


@pytest.mark.parametrize("strength", [2, 3])
def test_every_choice_is_held_and_no_forbidden_pair(strength: int) -> None:
    forbidden = [((0, 1), (1, 2)), ((1, 0), (3, 1))]
    cases = covering(SIZES, strength, forbidden)
    for group in itertools.combinations(range(len(SIZES)), strength):
        held = {tuple((i, case[i]) for i in group) for case in cases}
        for values in itertools.product(*(range(SIZES[i]) for i in group)):
            part = tuple(zip(group, values, strict=True))
            refused = any(pair in forbidden for pair in itertools.combinations(part, 2))
            assert (part in held) is not refused
    assert len(cases) < 4 * 3 * 2 * 3 * 2 / 2
    assert cases == covering(SIZES, strength, forbidden)


def test_what_cannot_be_held_is_said() -> None:
    with pytest.raises(ValueError, match="no case without a forbidden pair"):
        covering((2, 1, 2), 2, [((0, 0), (1, 0))])
