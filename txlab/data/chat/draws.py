"""How the items of each task are drawn: a question, its right answer, a plausible wrong one."""

import random
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONSONANTS, VOWELS = "bdfgklmnprst", "aeiou"
DIGITS = range(10)
NO_CARRY = [(one, other) for one in DIGITS for other in DIGITS if one + other <= 9]
"""Digits that add up to a digit."""


class Task(StrEnum):
    """What is asked for."""

    sort = "sort"
    """Letters in alphabetical order."""
    add = "add"
    """The sum of two numbers, written digit by digit."""
    copy = "copy"
    """A made-up word again."""
    reverse = "reverse"
    """Letters backwards."""
    tally = "tally"
    """How often a letter occurs."""
    subtract = "subtract"
    """The difference of two numbers, written digit by digit; never below zero."""
    multiply = "multiply"
    """The product of two numbers, written digit by digit."""
    order = "order"
    """Numbers by size, the smallest first."""
    lookup = "lookup"
    """The value of a key in a list of keys and values."""


class Level(StrEnum):
    """How large the items are."""

    easy = "easy"
    medium = "medium"
    hard = "hard"


Draw = Callable[[random.Random, Level], tuple[str, str, str]]
"""Makes (question, right answer, plausible wrong answer)."""


def _spaced(letters: Iterable[str]) -> str:
    return " ".join(letters)


def _swapped(source: random.Random, letters: Sequence[str]) -> list[str]:
    """Two different neighbours changed places; the last letter doubled where all are the same."""
    places = [i for i in range(len(letters) - 1) if letters[i] != letters[i + 1]]
    if not places:
        return [*letters, letters[-1]]
    i = source.choice(places)
    return [*letters[:i], letters[i + 1], letters[i], *letters[i + 2 :]]


def _letters(source: random.Random, level: Level) -> list[str]:
    """Different letters in any order."""
    n, alphabet = {
        Level.easy: (source.randint(3, 4), 8),
        Level.medium: (source.randint(5, 7), 16),
        Level.hard: (source.randint(9, 12), 26),
    }[level]
    return source.sample(LETTERS[:alphabet], n)


def _sort(source: random.Random, level: Level) -> tuple[str, str, str]:
    letters = _letters(source, level)
    right = sorted(letters)
    wrong = _swapped(source, right)
    return f"Sort the letters.\n{_spaced(letters)}", _spaced(right), _spaced(wrong)


def _reverse(source: random.Random, level: Level) -> tuple[str, str, str]:
    letters = _letters(source, level)
    right = letters[::-1]
    wrong = _swapped(source, right)
    return f"Reverse the letters.\n{_spaced(letters)}", _spaced(right), _spaced(wrong)


def _add(source: random.Random, level: Level) -> tuple[str, str, str]:
    if level == Level.easy:  # two digits each, and nothing to carry
        tens = source.choice([pair for pair in NO_CARRY if 0 not in pair])
        units = source.choice(NO_CARRY)
        one, other = (10 * ten + unit for ten, unit in zip(tens, units, strict=True))
    else:
        highest = 99 if level == Level.medium else 9999
        one, other = (source.randint(0, highest) for _ in range(2))
    right = one + other
    return _sum("Add the numbers.", "+", (one, other, right), _near(source, right))


def _near(source: random.Random, right: int) -> int:
    """Another number that is not below zero, one or ten away."""
    wrong = abs(right + source.choice([-10, -1, 1, 10]))
    return right + 1 if wrong == right else wrong


def _sum(order: str, sign: str, numbers: tuple[int, int, int], wrong: int) -> tuple[str, str, str]:
    """`numbers`: the two that are given, and the one they make."""
    one, other, right, worse = (_spaced(str(number)) for number in (*numbers, wrong))
    return f"{order}\n{one} {sign} {other}", right, worse


def _subtract(source: random.Random, level: Level) -> tuple[str, str, str]:
    if level == Level.easy:  # two digits each, and nothing to borrow
        digits = [sorted((source.choice(part), source.choice(part)), reverse=True)
                  for part in (DIGITS[1:], DIGITS)]  # fmt: skip
        one, other = (10 * ten + unit for ten, unit in zip(*digits, strict=True))
    else:
        highest = 99 if level == Level.medium else 9999
        other, one = sorted(source.randint(0, highest) for _ in range(2))
    right = one - other
    return _sum("Subtract the numbers.", "-", (one, other, right), _near(source, right))


def _multiply(source: random.Random, level: Level) -> tuple[str, str, str]:
    (low, high), (least, most) = {
        Level.easy: ((2, 9), (10, 99)),
        Level.medium: ((10, 99), (10, 99)),
        Level.hard: ((100, 999), (100, 999)),
    }[level]
    one, other = source.randint(low, high), source.randint(least, most)
    wrong = one * (other + source.choice([-1, 1]))  # as one who has miscounted the rows
    return _sum("Multiply the numbers.", "x", (one, other, one * other), wrong)


def _order(source: random.Random, level: Level) -> tuple[str, str, str]:
    n, highest = {
        Level.easy: (source.randint(3, 4), 20),
        Level.medium: (source.randint(5, 7), 99),
        Level.hard: (source.randint(9, 12), 999),
    }[level]
    numbers = source.sample(range(highest + 1), n)
    right = [str(number) for number in sorted(numbers)]
    wrong = _swapped(source, right)
    return f"Sort the numbers.\n{_spaced(map(str, numbers))}", _spaced(right), _spaced(wrong)


def _lookup(source: random.Random, level: Level) -> tuple[str, str, str]:
    n, letters, highest = {
        Level.easy: (source.randint(3, 4), 1, 9),
        Level.medium: (source.randint(6, 8), 2, 99),
        Level.hard: (source.randint(12, 20), 2, 999),
    }[level]
    names = source.sample(range(len(LETTERS) ** letters), n)
    keys = [LETTERS[i] if letters == 1 else LETTERS[i // 26] + LETTERS[i % 26] for i in names]
    values = [str(i) for i in source.sample(range(highest + 1), n)]
    wanted, other = source.sample(range(n), 2)
    pairs = ", ".join(f"{key} {value}" for key, value in zip(keys, values, strict=True))
    return f"Look up {keys[wanted]}.\n{pairs}", values[wanted], values[other]


def _copy(source: random.Random, level: Level) -> tuple[str, str, str]:
    syllables = {Level.easy: 2, Level.medium: source.randint(3, 4), Level.hard: 7}[level]
    word = "".join(source.choice(CONSONANTS) + source.choice(VOWELS) for _ in range(syllables))
    return f"Copy the word.\n{word}", word, "".join(_swapped(source, word))


def _tally(source: random.Random, level: Level) -> tuple[str, str, str]:
    alphabet, n = {
        Level.easy: ("abc", source.randint(3, 5)),
        Level.medium: ("abcde", source.randint(6, 9)),
        Level.hard: ("abcdefgh", source.randint(10, 20)),
    }[level]
    letters, wanted = source.choices(alphabet, k=n), source.choice(alphabet)
    right = letters.count(wanted)
    wrong = right + 1 if right == 0 else right + source.choice([-1, 1])
    return f"Count the letter {wanted}.\n{_spaced(letters)}", str(right), str(wrong)


DRAWS: dict[Task, Draw] = {
    Task.sort: _sort,
    Task.add: _add,
    Task.copy: _copy,
    Task.reverse: _reverse,
    Task.tally: _tally,
    Task.subtract: _subtract,
    Task.multiply: _multiply,
    Task.order: _order,
    Task.lookup: _lookup,
}
