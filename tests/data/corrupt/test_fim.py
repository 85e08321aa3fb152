"""Fill-in-the-middle: both orders by hand, and that no token is lost or changed."""

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.data import IGNORE
from txlab.data.corrupt.fim import FIM, rearranged
from txlab.data.corrupt.prefix import pieces_of


def test_both_orders_by_hand():
    marks = (90, 91, 92)
    text = [1, 2, 3, 4, 5]
    assert rearranged(text, (2, 4), marks, spm=False) == [90, 1, 2, 91, 5, 92, 3, 4]
    assert rearranged(text, (2, 4), marks, spm=True) == [90, 91, 5, 92, 1, 2, 3, 4]
    assert rearranged(text, (0, 5), marks, spm=False) == [90, 91, 92, 1, 2, 3, 4, 5]


def pieces(row):
    return [row["tokens"][a:b].tolist() for a, b in pieces_of(row)]


def restored(ids, marks):
    """The piece as it was before it was rearranged."""
    if marks[0] not in ids:
        return ids
    start = ids.index(marks[0])
    head, rest = ids[:start], ids[start + 1 :]
    before, rest = rest[: rest.index(marks[1])], rest[rest.index(marks[1]) + 1 :]
    suffix, middle = rest[: rest.index(marks[2])], rest[rest.index(marks[2]) + 1 :]
    tail = middle[-1:] if middle[-1:] == [1] else []
    return [*head, *before, *middle[: len(middle) - len(tail)], *suffix, *tail]


@pytest.mark.parametrize(("rate", "spm"), [(1.0, 0.0), (1.0, 1.0), (0.0, 0.5), (0.5, 0.5)])
def test_rows_hold_the_same_text(made, rate, spm):
    built = made("fim", context=256, fim_rate=rate, spm_rate=spm)
    marks = [built.tokenizer.control[s] for s in built.control]
    moved = whole = 0
    for number in range(len(built.train)):
        batch = built.train.drawn([number], [0])
        row = {k: v[0] for k, v in batch.items()}
        plain = {k: v[0] for k, v in built.train.text.batch([number]).items()}
        found = pieces(row)
        assert [restored(piece, marks) for piece in found] == pieces(plain)
        moved += sum(marks[0] in piece for piece in found)
        whole += min(4, len(found))
        for (a, b), piece in zip(pieces_of(row), found, strict=True):
            assert row["labels"][a:b].tolist() == [*piece[1:], IGNORE]
            assert row["positions"][a:b].tolist() == list(range(b - a))
        assert bool((row["labels"][~row["valid"]] == IGNORE).all())
    assert moved / whole == pytest.approx(rate, abs=0.15)
    if spm == 1.0:
        ids = built.train.drawn([0], [0])["tokens"][0]
        after = ids[(ids == marks[0]).nonzero()[:, 0] + 1]
        assert bool((after == marks[1]).all())


def test_cuts_are_drawn_anew_in_each_epoch(made):
    built = made("fim", context=128, fim_rate=1.0)
    one, two = (built.train.drawn([3], [epoch])["tokens"] for epoch in (0, 1))
    assert not torch.equal(one, two)


def test_refusals(made):
    for fields in ({"fim_rate": 1.5}, {"spm_rate": -0.1}, {"pieces": 0}):
        with pytest.raises(RequestError, match=next(iter(fields))):
            FIM.Config(**fields)
    with pytest.raises(RequestError, match=r"15 of a row's model\.context=16 places"):
        made("fim", context=16, pieces=5)
