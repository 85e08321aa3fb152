import hashlib
import itertools
import json
import re

import pytest

from txlab.data.chat.tasks import Level, Task, items

SIGNS = {"+": int.__add__, "-": int.__sub__, "x": int.__mul__}
SOME = {"n_train": 100, "n_val": 0, "seed": 0}
SHARED = [Task.sort, Task.add, Task.copy, Task.reverse, Task.tally]


def solve(question: str) -> str:
    """The answer, worked out from the question's text alone."""
    order, _, given = question.partition("\n")
    letters = given.split(" ")
    if order == "Sort the letters.":
        return " ".join(sorted(letters))
    if order == "Sort the numbers.":
        return " ".join(sorted(letters, key=int))
    if order == "Reverse the letters.":
        return " ".join(reversed(letters))
    if order == "Copy the word.":
        return given
    if order.startswith("Look up "):
        return dict(pair.split(" ") for pair in given.split(", "))[order[8:-1]]
    if order.endswith(" the numbers."):
        one, sign, other = re.fullmatch(r"([\d ]+) ([-+x]) ([\d ]+)", given).groups()  # type: ignore
        numbers = (int(text.replace(" ", "")) for text in (one, other))
        return " ".join(str(SIGNS[sign](*numbers)))
    return str(letters.count(order.removesuffix(".")[-1]))


@pytest.mark.parametrize(("task", "level"), list(itertools.product(Task, Level)))
def test_answers_are_right_and_wrong_ones_are_not(task: Task, level: Level) -> None:
    train, val = items([task], level, n_train=80, n_val=20, seed=0)
    assert (len(train), len(val)) == (80, 20)
    for item in [*train, *val]:
        assert item.chosen == solve(item.messages[0]["content"])
        assert item.rejected != item.chosen
        assert item.rejected
    asked = {item.messages[0]["content"] for item in [*train, *val]}
    assert len(asked) == 100


def test_a_small_task_gives_what_it_has() -> None:
    train, val = items([Task.add, Task.copy], Level.easy, n_train=4000, n_val=1000, seed=0)
    assert len([i for i in train if "Add" in i.messages[0]["content"]]) == 1584
    assert len([i for i in val if "Add" in i.messages[0]["content"]]) == 396
    assert len([i for i in val if "Copy" in i.messages[0]["content"]]) == 500


def test_easy_sums_have_nothing_to_carry() -> None:
    train, _ = items([Task.add], Level.easy, n_train=300, n_val=0, seed=0)
    for item in train:
        numbers = item.messages[0]["content"].partition("\n")[2].replace(" ", "").split("+")
        assert [len(number) for number in numbers] == [2, 2]
        assert all(int(one) + int(other) <= 9 for one, other in zip(*numbers, strict=True))


def test_easy_differences_have_nothing_to_borrow() -> None:
    train, _ = items([Task.subtract], Level.easy, n_train=300, n_val=0, seed=0)
    for item in train:
        one, other = item.messages[0]["content"].partition("\n")[2].split(" - ")
        assert all(a >= b for a, b in zip(one.split(" "), other.split(" "), strict=True))


@pytest.mark.parametrize("task", Task)
def test_hard_questions_are_longer(task: Task) -> None:
    easy, hard = (
        sum(len(item.messages[0]["content"]) for item in items([task], level, **SOME)[0])
        for level in (Level.easy, Level.hard)
    )
    assert hard > 1.15 * easy


@pytest.mark.parametrize(
    ("tasks", "level", "sizes", "sha"),
    [
        (SHARED[:3], Level.easy, (4000, 240), "f5b8a3384f83303c"),
        (SHARED, Level.easy, (300, 60), "c3b91844b0194497"),
        (SHARED, Level.medium, (300, 60), "e20833139af841d4"),
        (SHARED, Level.hard, (300, 60), "3621a370ade11094"),
    ],
)
def test_items_are_what_they_were(
    tasks: list[Task], level: Level, sizes: tuple[int, int], sha: str
) -> None:
    """Models that were trained on them, and the figures in the documents, are about these."""
    parts = items(tasks, level, n_train=sizes[0], n_val=sizes[1], seed=0)
    text = json.dumps([[[i.messages, i.chosen, i.rejected] for i in part] for part in parts])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == sha


def test_items_follow_the_seed_and_nothing_else() -> None:
    one, same, other = (
        items(list(Task), Level.easy, n_train=50, n_val=10, seed=seed) for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other
