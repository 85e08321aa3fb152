import itertools

import pytest

from txlab.data.chat.tasks import Level, Task, items


def solve(question: str) -> str:
    """The answer, worked out from the question's text alone."""
    order, _, given = question.partition("\n")
    letters = given.split(" ")
    if order == "Sort the letters.":
        return " ".join(sorted(letters))
    if order == "Reverse the letters.":
        return " ".join(reversed(letters))
    if order == "Copy the word.":
        return given
    if order == "Add the numbers.":
        return " ".join(str(sum(int(n.replace(" ", "")) for n in given.split("+"))))
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


def test_items_follow_the_seed_and_nothing_else() -> None:
    one, same, other = (
        items(list(Task), Level.easy, n_train=50, n_val=10, seed=seed) for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other
