"""Values as people write them: whole numbers with scales, lists with commas, paths."""

import os
import re
from decimal import Decimal, InvalidOperation

_SCALES = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}
_SCALES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "": 1}
_NUMBER = re.compile(r"([+-]?[\d_]*\.?\d[\d_]*(?:[eE][+-]?\d+)?)(Ki|Mi|Gi|[kKMGBT]?)")


def whole_number(value: str) -> str:
    """`1e9`, `10M`, `64k`, `4Ki` as digits; any other value as it is."""
    match = _NUMBER.fullmatch(value)
    if match is None:
        return value
    try:
        number = Decimal(match[1].replace("_", "")) * _SCALES[match[2]]
    except InvalidOperation:
        return value
    return str(int(number)) if number == number.to_integral_value() else value


def choices(value: str) -> list[str]:
    """The value split at the commas that stand outside of quotes and brackets."""
    found, depth, quote = [""], 0, ""
    for letter in value:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if letter == "," and not quote and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def absolute(path: str) -> str:
    """A path from the home folder or the launch folder, as an absolute one; no address (x://)."""
    if "://" in path:
        return path
    return os.path.abspath(os.path.expanduser(path))
