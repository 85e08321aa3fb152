import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.data import split
from txlab.data.split import Split, aligned, choose, cut_at, cut_parts, digest, groups, slices


def marks(texts: list[str]) -> split.Marks:
    return split.marks(b"".join(map(digest, texts)))


def chosen(texts: list[str], fraction: float) -> Split:
    return choose(marks(texts), np.array([len(text.encode()) for text in texts]), fraction)


def sides(texts: list[str], found: Split) -> dict[str, tuple[bool, float]]:
    """What becomes of each text; fails where equal texts differ."""
    mine: dict[str, tuple[bool, float]] = {}
    for text, held_out, cut in zip(texts, found.held_out, found.cut, strict=True):
        assert mine.setdefault(text, (held_out, cut)) == (held_out, cut)
    return mine


def test_about_the_fraction_is_held_out() -> None:
    texts = [f"document {i} " * (1 + i % 7) for i in range(500)]
    found = chosen(texts, 0.1)
    held_out = sum(len(t) for t, out in zip(texts, found.held_out, strict=True) if out)
    assert 0.1 <= held_out / sum(map(len, texts)) <= 0.125
    assert found.rule == "whole documents are held out"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=20), st.floats(0.01, 0.5))
def test_equal_texts_stay_together_and_order_does_not_matter(
    texts: list[str], fraction: float
) -> None:
    mixed = random.Random(0).sample(texts, len(texts))
    assert sides(mixed, chosen(mixed, fraction)) == sides(texts, chosen(texts, fraction))


def test_the_smallest_digests_are_held_out() -> None:
    texts = [f"text {i:03d}" for i in range(200)]
    found = chosen(texts, 0.1)
    wanted = sorted(texts, key=digest)[:20]
    assert {t for t, out in zip(texts, found.held_out, strict=True) if out} == set(wanted)


def test_copies_count_together() -> None:
    texts = [f"text {i:03d}" for i in range(200)]
    copied = min(texts, key=digest)
    found = sides([*texts, *[copied] * 200], chosen([*texts, *[copied] * 200], 0.1))
    assert not found[copied][0]
    assert sum(out for out, _ in found.values()) == 40


def test_both_sides_have_text() -> None:
    for n in range(1, 30):
        texts = [f"{i} words of a document of its own " * 20 for i in range(n)]
        found = chosen(texts, 0.05)
        assert found.held_out.any() != found.cut.any(), n
        assert not found.held_out.all(), n


def test_a_single_document_is_cut_near_its_end() -> None:
    text = "".join(f"line {i}\n" for i in range(1000))
    found = chosen([text], 0.05)
    assert found.rule == "the end of the longest document is held out"
    place = cut_at(text, found.cut[0])
    assert text[:place].endswith("\n")
    assert 0.045 < 1 - place / len(text) < 0.06


def test_copies_of_a_cut_document_are_cut_alike() -> None:
    found = chosen(["some text that comes twice"] * 2, 0.2)
    assert not found.held_out.any()
    assert found.cut.tolist() == [0.2, 0.2]


def test_no_fraction_holds_nothing_out() -> None:
    for found in (chosen(["a", "b"], 0.0), chosen([], 0.5)):
        assert not found.held_out.any()
        assert found.rule == "nothing is held out"


def test_groups_are_in_the_order_of_digests() -> None:
    texts = ["b", "a", "b", "c", "a"]
    group, first = groups(marks(texts))
    assert [texts[i] for i in first] == sorted(set(texts), key=digest)
    assert [texts[first[g]] for g in group] == texts
    assert first.tolist() == [texts.index(texts[i]) for i in first]


def test_what_one_source_holds_out_no_other_trains_on() -> None:
    texts = ["a", "b", "c", "a", "b", "c"]
    own = Split(np.array([1, 0, 0, 0, 0, 0], bool), np.array([0, 0, 0, 0.5, 0.3, 0.0]))
    both = aligned(marks(texts), own)
    assert both.held_out.tolist() == [True, False, False, True, False, False]
    assert both.cut.tolist() == [0, 0.3, 0, 0, 0.3, 0]


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


@given(
    st.lists(st.text(" \nab", max_size=9), min_size=1, max_size=9),
    st.floats(0.01, 0.99),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_a_text_in_parts_is_cut_as_a_whole_one(
    parts: list[str], fraction: float, begin: int, length: int
) -> None:
    parts = ["a", *parts]
    text = "".join(parts)
    place, before, after = cut_parts(lambda: parts, fraction)
    assert place == cut_at(text, fraction)
    assert before == bool(text[:place].strip())
    assert after == bool(text[place:].strip())
    assert "".join(slices(parts, begin, begin + length)) == text[begin : begin + length]
    assert "".join(slices(parts, begin, None)) == text[begin:]
