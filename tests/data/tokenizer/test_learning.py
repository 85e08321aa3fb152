"""What the library is fed, and how a tokenizer.json is read."""

from collections import Counter
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from txlab.data.tokenizer import Byte, Pretrained, learning
from txlab.data.tokenizer.fallback import byte_tokens
from txlab.data.tokenizer.learning import alphabet, learn, within
from txlab.data.tokenizer.reading import Reading, byte_letters


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_each_piece_comes_as_often_as_it_was_counted(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "BATCH", batch)
    counts = {"ab": 50, " c": 3, "\U000f0000": 2}
    fed = list(learning._repeated(counts, "|"))
    assert Counter("".join(fed).removesuffix("|").split("|")) == counts
    assert max(map(len, fed)) <= 2 * batch + 6


def test_the_mark_between_pieces_is_none_of_their_letters() -> None:
    from tokenizers import trainers

    counts = {"a\U000f0000": 3, "b\U000f0001": 2}
    trainer = trainers.BpeTrainer(vocab_size=9, show_progress=False)
    found = learn(models.BPE(), trainer, counts)
    assert found["merges"] == [["a", "\U000f0000"], ["b", "\U000f0001"]]


def test_alphabets_are_chosen_by_count_then_by_letter() -> None:
    counts = {"aab": 2, "cb": 1}
    assert alphabet(counts, set("xy"), None, 9) == ["a", "b", "c", "x", "y"]
    assert alphabet(counts, set("xy"), 2, 9) == ["a", "b"]


def test_pieces_are_divided_at_letters_that_are_not_kept() -> None:
    assert within({"abxab": 2, "ba": 1, "x": 9}, {"a", "b"}) == {"ab": 4, "ba": 1}
    assert within({"ab": 2}, {"a", "b"}) == {"ab": 2}


BYTEWISE = {letter: i for i, letter in enumerate(byte_letters())}
FALLBACK = {token: i for i, token in enumerate(["a", *byte_tokens()])}
JOINED = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])


def read(model: Any, decoder: Any, **parts: Any) -> Reading:
    import json

    library: Any = Tokenizer(model)
    library.decoder = decoder
    for name, part in parts.items():
        setattr(library, name, part)
    return Reading(json.loads(library.to_str()), library.get_vocab())


@pytest.mark.parametrize(
    ("exact", "parts"),
    [
        (True, {"pre_tokenizer": pre_tokenizers.Split(Regex("x"), "isolated")}),
        (False, {"pre_tokenizer": pre_tokenizers.Split(Regex("x"), "removed")}),
        (False, {"pre_tokenizer": pre_tokenizers.WhitespaceSplit()}),
        (False, {"pre_tokenizer": pre_tokenizers.Metaspace(prepend_scheme="first")}),
        (
            False,
            {
                "pre_tokenizer": pre_tokenizers.Sequence(
                    [pre_tokenizers.Digits(), pre_tokenizers.Whitespace()]
                )
            },
        ),
        (False, {"normalizer": normalizers.NFC()}),
    ],
)
def test_what_changes_or_drops_text_is_not_exact(exact: bool, parts: dict[str, Any]) -> None:
    model = models.BPE(vocab=FALLBACK, merges=[], byte_fallback=True)
    assert read(model, JOINED, **parts).exact is exact


def test_byte_level_ones_are_exact_with_all_bytes_and_no_space_before() -> None:
    for prefixed in (False, True):
        letters = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
        found = read(models.BPE(vocab=BYTEWISE, merges=[]), decoders.ByteLevel(),
                     pre_tokenizer=letters)  # fmt: skip
        assert found.exact is not prefixed
    lacking = {letter: i for letter, i in BYTEWISE.items() if i}
    assert not read(models.BPE(vocab=lacking, merges=[]), decoders.ByteLevel()).exact


def test_a_vocabulary_of_bytes_has_its_size_whatever_is_wanted() -> None:
    assert Byte.Config(vocab_size=4096).vocab_size == 261
    assert Byte.Config(control=["<|mask|>"]).vocab_size == 262
    assert not Pretrained.trainable
