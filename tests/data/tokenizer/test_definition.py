"""The definition of byte-pair encoding, by hand; and the fast one against it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from txlab.data.tokenizer import BPE
from txlab.data.tokenizer.definition import apply, joined, learn
from txlab.data.tokenizer.reading import byte_letters
from txlab.data.tokenizer.trained import splitter

WORDS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
MERGES = [("u", "g"), ("u", "n"), ("h", "ug"), ("p", "un")]


def test_the_worked_example() -> None:
    assert learn(WORDS, 4) == MERGES
    assert apply("bugs", MERGES) == ["b", "ug", "s"]
    assert apply("hugs", MERGES) == ["hug", "s"]
    assert apply("", MERGES) == []


def test_the_fast_one_agrees_on_the_worked_example() -> None:
    text = "\n".join(word for word, n in WORDS.items() for _ in range(n))
    made = BPE(BPE.Config(vocab_size=len(MERGES) + 5 + 256))
    made.train([text])
    assert merges_of(made) == MERGES
    spelled = [made._library.id_to_token(i) for i in made.encode("bugs\nhugs")]
    assert spelled == ["b", "ug", "s", "Ċ", "hug", "s"]


def test_merges_are_made_from_the_left_and_never_overlap() -> None:
    assert joined(list("aaaaa"), ("a", "a")) == ["aa", "aa", "a"]
    assert joined(["aa", "a", "a"], ("a", "a")) == ["aa", "aa"]


def test_ties_are_decided_by_age_and_rare_pairs_are_left() -> None:
    assert learn({"ba": 1, "ab": 1}, 9) == [("a", "b"), ("b", "a")]
    assert learn({"abab": 1, "ccc": 1}, 9, min_frequency=2) == [("a", "b"), ("c", "c")]
    assert learn({"xy": 3, "zz": 2}, 9, min_frequency=3) == [("x", "y")]
    assert learn({}, 9) == []


def merges_of(made: BPE) -> list[tuple[str, str]]:
    import json

    return [tuple(pair) for pair in json.loads(made._library.to_str())["model"]["merges"]]


def pieces(text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in splitter().pre_tokenize_str(text)]


TEXTS = st.lists(st.text("abc é1\n.", max_size=60), min_size=1, max_size=6)


@given(texts=TEXTS, other=st.text("abc é1\n.d"), least=st.integers(1, 3))
def test_over_characters_it_learns_and_applies_as_the_definition_says(
    texts: list[str], other: str, least: int
) -> None:
    words = Counter(piece for text in texts for piece in pieces(text))
    wanted = learn(words, 40, least)
    size = 5 + 256 + len(set().union(*words)) + 40
    made = BPE(BPE.Config(vocab_size=size, level="char", min_frequency=least))
    made.train(texts)
    assert merges_of(made) == wanted
    known = set().union(*words)
    divided = [s for piece in pieces(other) for s in apply(piece, wanted)]
    symbols = [s if s[0] in known else None for s in divided]
    found = [made._library.id_to_token(i) for i in made.encode(other)]
    assert [s for s in found if not s.startswith("<0x")] == [s for s in symbols if s]
    assert made.decode(made.encode(other)) == other


@given(texts=TEXTS, other=st.text(max_size=40))
def test_over_bytes_it_learns_and_applies_as_the_definition_says(
    texts: list[str], other: str
) -> None:
    letters = {byte: letter for letter, byte in byte_letters().items()}

    def spelled(piece: str) -> str:
        return "".join(letters[byte] for byte in piece.encode())

    words = Counter(spelled(piece) for text in texts for piece in pieces(text))
    # The whole alphabet is there from the start, and so decides who is older.
    wanted = learn({**words, **dict.fromkeys(byte_letters(), 0)}, 30, 2)
    made = BPE(BPE.Config(vocab_size=5 + 256 + 30))
    made.train(texts)
    assert merges_of(made) == wanted
    found = [made._library.id_to_token(i) for i in made.encode(other)]
    assert found == [s for piece in pieces(other) for s in apply(spelled(piece), wanted)]
