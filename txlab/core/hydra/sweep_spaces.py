"""Hydra's words for several values, as W&B's parameters."""

from typing import Any

from hydra.core.override_parser.types import Glob, IntervalSweep, Override

from txlab.core.errors import RequestError
from txlab.core.slot import SLOTS


def parameter(word: Override) -> dict[str, Any]:
    """`a=1,2`, `choice()`, `range()`: values; `interval()`, `tag(log,interval())`: a distribution.

    Of a key that takes whole numbers alone, only whole numbers are drawn.
    """
    key, given = word.get_key_element(), word.value()
    if isinstance(given, Glob):
        names = given.filter(list(SLOTS[key].options)) if key in SLOTS else []
        if not names:
            raise RequestError(f"{word.input_line} stands for no option of a slot: list them.")
        return {"values": names}
    if word.is_discrete_sweep():
        return {"values": [_typed(value) for value in word.sweep_string_iterator()]}
    assert isinstance(given, IntervalSweep)
    if unknown := given.tags - {"log"}:
        raise RequestError(f"{word.input_line}: unknown tag {unknown.pop()}; there is log.")
    low, high, log = interval(word)
    if isinstance(low, int) and isinstance(high, int):  # as the normaliser makes of such keys
        if log:
            return {"distribution": "q_log_uniform_values", "min": low, "max": high, "q": 1}
        return {"distribution": "int_uniform", "min": low, "max": high}
    name = "log_uniform_values" if log else "uniform"
    return {"distribution": name, "min": float(low), "max": float(high)}


def interval(word: Override) -> tuple[float, float, bool]:
    """Both ends of a range, and whether it is a logarithmic one; RequestError where it is none."""
    space = word.value()
    assert isinstance(space, IntervalSweep)
    assert space.start is not None
    assert space.end is not None
    low, high, log = space.start, space.end, "log" in space.tags
    if not low < high:
        raise RequestError(f"{word.input_line}: the first end must be below the second.")
    if log and low <= 0:
        raise RequestError(f"{word.input_line}: on a log scale both ends are above 0.")
    return low, high, log


def _typed(value: str) -> Any:
    """Numbers as numbers, for W&B's axes; whatever would be spelled otherwise stays text."""
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        return number if number == number and abs(number) != float("inf") else value
    return value
