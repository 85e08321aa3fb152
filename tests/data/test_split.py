import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.data.split import Split, choose, cut_at, digest


def marks(texts: list[str]) -> list[tuple[bytes, int]]:
    return [(digest(text), len(text.encode())) for text in texts]


def test_about_the_fraction_is_held_out() -> None:
    texts = [f"document {i} " * (1 + i % 7) for i in range(500)]
    split = choose(marks(texts), 0.1)
    held_out = sum(len(t) for t in texts if digest(t) in split.held_out)
    assert 0.1 <= held_out / sum(map(len, texts)) <= 0.125
    assert split.rule == "whole documents are held out"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=20), st.floats(0.01, 0.5))
def test_nothing_is_lost_and_order_does_not_matter(texts: list[str], fraction: float) -> None:
    split = choose(marks(texts), fraction)
    mixed = random.Random(0).sample(texts, len(texts))
    assert choose(marks(mixed), fraction) == split
    for text in texts:
        assert "".join(part for _, part in split.parts(text)) == text
    sides = {}
    for text in texts:  # leak-free: equal documents are on one side
        for place, (held_out, part) in enumerate(split.parts(text)):
            assert sides.setdefault((text, place, part), held_out) == held_out


def test_the_smallest_digests_are_held_out() -> None:
    found = marks([f"text {i:03d}" for i in range(200)])
    wanted = sorted(mark for mark, _ in found)[:20]
    assert choose(found, 0.1).held_out == frozenset(wanted)


def test_copies_count_together() -> None:
    found = marks([f"text {i:03d}" for i in range(200)])
    copied = min(found)
    split = choose([*found, *[copied] * 200], 0.1)
    assert copied[0] not in split.held_out
    assert len(split.held_out) == 40


def test_both_sides_have_text() -> None:
    for n in range(1, 30):
        texts = [f"{i} words of a document of its own " * 20 for i in range(n)]
        split = choose(marks(texts), 0.05)
        sides = [held_out for text in texts for held_out, part in split.parts(text) if part]
        assert {True, False} == set(sides), n


def test_a_single_document_is_cut_near_its_end() -> None:
    text = "".join(f"line {i}\n" for i in range(1000))
    split = choose(marks([text]), 0.05)
    (first, head), (second, tail) = split.parts(text)
    assert (first, second) == (False, True)
    assert head.endswith("\n")
    assert head + tail == text
    assert 0.045 < len(tail) / len(text) < 0.06
    assert split.rule == "the end of the longest document is held out"


def test_copies_of_a_cut_document_are_cut_alike() -> None:
    split = choose(marks(["some text that comes twice"] * 2), 0.2)
    assert len(split.held_out) == 0
    assert split.cut == digest("some text that comes twice")


def test_no_fraction_holds_nothing_out() -> None:
    assert choose(marks(["a", "b"]), 0.0) == Split(frozenset())


@pytest.mark.parametrize(
    ("text", "place"),
    [("x" * 100, 80), ("x" * 75 + " " + "x" * 24, 76), ("a b\nc\n\n" + "d" * 2, 7)],
)
def test_where_a_text_is_cut(text: str, place: int) -> None:
    assert cut_at(text, 0.2) == place


@given(st.text(" \nab", max_size=60), st.floats(0.01, 0.9))
def test_neither_part_of_a_cut_text_is_blank(text: str, fraction: float) -> None:
    text = f"a{text}b"
    for padded in (text, f"\n{text}", text + " " * 90):
        place = cut_at(padded, min(fraction, 1 - 1 / len(text)))
        assert padded[:place].strip()
        assert padded[place:].strip()
