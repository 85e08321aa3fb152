"""Tasks with one right answer, made up from a seed: to show that training on chats works."""

import random
from collections.abc import Sequence

from txlab.data.chat.draws import DRAWS, Level, Task
from txlab.data.chat.messages import Item

__all__ = ["Level", "Task", "items"]

PATIENCE = 50
"""Draws without anything new after which a task is taken for exhausted."""
SHARE = 5
"""Of a task with too few items at most one in so many is held out."""


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
