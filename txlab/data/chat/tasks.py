"""Tasks with one right answer, made up from a seed: to show that training on chats works."""

import random
from collections.abc import Callable, Sequence
from enum import StrEnum

from txlab.data.chat.messages import Item

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONSONANTS, VOWELS = "bdfgklmnprst", "aeiou"
DIGITS = range(10)
NO_CARRY = [(one, other) for one in DIGITS for other in DIGITS if one + other <= 9]
"""Digits that add up to a digit."""
PATIENCE = 50
"""Draws without anything new after which a task is taken for exhausted."""
SHARE = 5
"""Of a task with too few items at most one in so many is held out."""


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


class Level(StrEnum):
    """How large the items are."""

    easy = "easy"
    medium = "medium"
    hard = "hard"


Draw = Callable[[random.Random, Level], tuple[str, str, str]]
"""Makes (question, right answer, plausible wrong answer)."""


def _spaced(letters: Sequence[str]) -> str:
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
    wrong = abs(right + source.choice([-10, -1, 1, 10]))
    wrong = right + 1 if wrong == right else wrong
    return (
        f"Add the numbers.\n{_spaced(str(one))} + {_spaced(str(other))}",
        _spaced(str(right)),
        _spaced(str(wrong)),
    )


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
}


def items(
    tasks: Sequence[Task], level: Level, *, n_train: int, n_val: int, seed: int
) -> tuple[list[Item], list[Item]]:
    """(training, held out), each with the tasks in turn; no question is in both or twice in one.

    A task that has fewer different questions than wanted gives what it has: the others don't make
    up for it. Every item has one user message, `chosen` the right answer, `rejected` a wrong one.
    """
    train: list[list[Item]] = []
    val: list[list[Item]] = []
    for number, task in enumerate(tasks):
        shares = [n // len(tasks) + (number < n % len(tasks)) for n in (n_train, n_val)]
        found = _distinct(task, level, sum(shares), seed)
        enough = len(found) == sum(shares)
        held_out = shares[1] if enough else min(shares[1], len(found) // SHARE)
        val.append(found[:held_out])
        train.append(found[held_out : held_out + shares[0]])
    return _in_turn(train), _in_turn(val)


def _distinct(task: Task, level: Level, n: int, seed: int) -> list[Item]:
    """`n` items with different questions, or all that a patient search finds."""
    source = random.Random(f"{task}-{level}-{seed}")
    found: dict[str, Item] = {}
    idle = 0
    while len(found) < n and idle < PATIENCE * (len(found) + 1):
        question, right, wrong = DRAWS[task](source, level)
        idle = idle + 1 if question in found else 0
        messages = [{"role": "user", "content": question}]
        found.setdefault(
            question, Item(f"task {task}, item {len(found) + 1}", messages, right, wrong)
        )
    return list(found.values())


def _in_turn(lists: Sequence[Sequence[Item]]) -> list[Item]:
    longest = max(map(len, lists), default=0)
    return [of_task[i] for i in range(longest) for of_task in lists if i < len(of_task)]
