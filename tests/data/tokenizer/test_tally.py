"""Pieces are counted exactly while they fit, by a fair sample beyond, whatever the files."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txlab.data.tokenizer import BPE, tally
from txlab.data.tokenizer.tally import Tally
from txlab.data.tokenizer.trained import splitter


def library_cut(text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in splitter().pre_tokenize_str(text)]


def counted(texts: Sequence[str], **settings: int) -> Counter[str]:
    made = Tally(library_cut, **settings)
    for text in texts:
        made.add(text)
    found: Counter[str] = Counter()
    for piece, n in made.pieces():
        found[piece] += n
    return found


TEXTS = st.text("ab' \n\t\u3000\u0301\x1cé1.!日", max_size=40) | st.text()


@example("\n b\n\nc  d\t e")
@given(TEXTS)
def test_counts_are_those_of_the_library(text: str) -> None:
    assert counted([text]) == Counter(library_cut(text))


def test_a_text_without_spaces_is_cut_as_the_library_does() -> None:
    text = "".join(random.Random(0).choices("abcdefgh.,1", k=5000))
    assert counted([text]) == Counter(library_cut(text))


def stream(n: int) -> str:
    """Frequent words among rare ones, in lines."""
    source = random.Random(1)
    rare = ("".join(source.choices("abcdefghij", k=8)) for _ in range(n))
    frequent = source.choices(["the", "of", "token"], k=n)
    words = [word for pair in zip(frequent, rare, strict=True) for word in pair]
    return "\n".join(" ".join(words[i : i + 10]) for i in range(0, len(words), 10))


def test_beyond_its_room_frequent_pieces_are_exact_and_rare_ones_stand_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tally, "BATCH", 512)
    text = stream(20_000)
    exact, found = counted([text]), counted([text], room=60_000)
    for word in ("the", "of", "token"):
        assert found[f" {word}"] == exact[f" {word}"]
    assert 300 < len(found) < 3_000 < 20_000 < len(exact)
    assert sum(found.values()) == pytest.approx(sum(exact.values()), rel=0.05)


def test_the_result_does_not_depend_on_how_the_text_is_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # TOK-05
    monkeypatch.setattr(tally, "BATCH", 512)
    text = stream(5_000)
    one = counted([text], room=60_000)
    lines = text.splitlines(keepends=True)
    many = counted(["".join(lines[i : i + 37]) for i in range(0, len(lines), 37)], room=60_000)
    assert one == many
    assert one != counted([text])


def test_memory_is_bounded_without_any_white_space() -> None:  # TOK-05
    text = "".join(random.Random(0).choices("abcdefghijkl", k=400_000))
    made = Tally(library_cut, room=100_000)
    made.add(text)
    kept = list(made.pieces())
    assert made.level > 0
    assert sum(len(piece) + 16 for piece, _ in kept) <= 100_000
    assert sum(n for _, n in kept) == pytest.approx(len(text) / 48, rel=0.1)
    assert made.letters == set("abcdefghijkl")


def test_training_says_that_it_sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "".join(random.Random(0).choices("abcdefghijkl", k=40_000))
    made = [BPE(BPE.Config(vocab_size=300)) for _ in range(3)]
    made[0].train([text])
    monkeypatch.setattr(BPE, "room", 10_000)
    made[1].train([text])
    made[2].train([text[: 48 * 400], text[48 * 400 :]])
    assert (made[0].sampled, made[1].sampled) == (1, 16)
    assert made[1].fingerprint == made[2].fingerprint != made[0].fingerprint
    made[1].save(tmp_path / "t.json")
    again = BPE.load(tmp_path / "t.json")
    assert (again.sampled, again.fingerprint) == (16, made[1].fingerprint)
