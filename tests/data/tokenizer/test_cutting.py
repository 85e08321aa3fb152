"""Parts of long texts have the ids of the whole, whatever the rules of the tokenizer."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from txlab.data.tokenizer import cutting
from txlab.data.tokenizer.cutting import Cutter

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = "It's 1234 words, e.g.\n\n  of some (text);\nothers: naïve 日本語。テキスト x" * 6
RULES: dict[str, tuple[Any, Any]] = {
    "gpt2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "prefixed": (None, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3": (None, pre_tokenizers.Split(Regex(LLAMA3), "isolated")),
    "metaspace": (None, pre_tokenizers.Metaspace(prepend_scheme="first")),
    "unsplit": (None, pre_tokenizers.Metaspace(prepend_scheme="always", split=False)),
    "bert": (normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()),
    "prepended": (normalizers.Prepend("▁"), pre_tokenizers.WhitespaceSplit()),
    "bare": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
}


def made(name: str) -> Tokenizer:
    library: Any = Tokenizer(models.BPE(unk_token="?"))
    library.normalizer, library.pre_tokenizer = RULES[name]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["?"], show_progress=False)
    library.train_from_iterator([TEXT], trainer)
    return library


LIBRARIES = {name: made(name) for name in RULES}
PARTS = st.sampled_from(
    ["the", " of", "\n", "  ", ". ", ",", "1", "日本", "。", "é", "\u0301", "'s"]
)


@pytest.mark.parametrize("name", RULES)
@given(words=st.lists(PARTS, max_size=80), span=st.integers(20, 60))
def test_ids_are_those_of_the_whole(name: str, words: list[str], span: int) -> None:
    library, text = LIBRARIES[name], "".join(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SPAN", span)
        patch.setattr(cutting, "NEAR", 16)
        parts = list(Cutter(library).parts(text))
    assert "".join(parts) == text
    assert [i for p in parts for i in library.encode(p).ids] == library.encode(text).ids


@pytest.mark.parametrize("name", ["gpt2", "prefixed", "llama3", "metaspace", "bert"])
def test_ordinary_text_is_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "SPAN", 100)
    monkeypatch.setattr(cutting, "NEAR", 50)
    text = " ".join(random.Random(0).choices(TEXT.split(), k=1000))
    parts = list(Cutter(LIBRARIES[name]).parts(text))
    assert max(map(len, parts)) <= 150
    library = LIBRARIES[name]
    assert [i for p in parts for i in library.encode(p).ids] == library.encode(text).ids


@pytest.mark.parametrize("name", ["unsplit", "bare", "prepended", "gpt2"])
def test_what_has_no_border_stays_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "SPAN", 100)
    text = "y" * 1000 if name == "gpt2" else TEXT
    assert list(Cutter(LIBRARIES[name]).parts(text)) == [text]


def test_text_without_spaces_is_cut_at_its_punctuation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "SPAN", 100)
    text = "日本語のテキスト。" * 100
    assert max(map(len, Cutter(LIBRARIES["gpt2"]).parts(text))) <= 100 + cutting.NEAR


def test_parts_but_the_last_stay_whatever_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "SPAN", 100)
    cutter = Cutter(LIBRARIES["llama3"])
    for end in range(400, 480):
        *done, _ = cutter.parts(TEXT[:end])
        assert done == list(cutter.parts(TEXT))[: len(done)]
