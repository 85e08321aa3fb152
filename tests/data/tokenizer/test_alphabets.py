"""Characters as the alphabet: level char of bpe, unigram, and bytes alone."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data.tokenizer import BPE, Byte, Tokenizer, Unigram, tokenizer
from txlab.data.tokenizer.control import CONTROL, UNKNOWN

TEXT = "The tokenizer reads text; it's the text it cuts, 1234 times or 99.\n" * 20
CONFIGS = {
    "char": BPE.Config(vocab_size=400, level="char"),
    "char_unknown": BPE.Config(vocab_size=100, level="char", unseen="unknown"),
    "unigram": Unigram.Config(vocab_size=400),
    "unigram_unknown": Unigram.Config(vocab_size=100, unseen="unknown"),
    "byte": Byte.Config(),
}
MADE: dict[str, Tokenizer] = {}


def made(name: str) -> Tokenizer:
    if name not in MADE:
        MADE[name] = tokenizer.build(CONFIGS[name])
        MADE[name].train([TEXT])
    return MADE[name]


def pieces(name: str, text: str) -> list[str]:
    library = made(name)._library  # type: ignore[attr-defined]
    return [library.id_to_token(i) for i in made(name).encode(text)]


@pytest.mark.parametrize("name", ["char", "unigram", "byte"])
@given(text=st.text() | st.sampled_from(["<0x41>", "▁a ▁", "<|bos|><|unk|>", " \x00\ufeff\n\t "]))
def test_any_text_survives(name: str, text: str) -> None:  # TOK-01, TOK-02
    one = made(name)
    ids = one.encode(text)
    assert (one.exact, one.unk_id) == (True, None)
    assert one.decode(ids) == text
    assert one.decode_bytes(ids) == text.encode()
    assert not set(ids) & set(one.control.values())


@pytest.mark.parametrize("name", ["char_unknown", "unigram_unknown"])
def test_unseen_characters_are_unknown_and_counted(name: str) -> None:  # TOK-01
    one = made(name)
    assert (one.exact, one.unk_id, one.special["unk_token"]) == (False, 5, UNKNOWN)
    assert one.encode(TEXT).count(5) == 0
    assert one.decode(one.encode(TEXT)) == TEXT
    ids = one.encode("the é text")
    assert ids.count(5) == 1
    assert one.decode(ids) == "the  text"
    assert one.decode_bytes(ids) == b"the  text"


def test_merges_of_characters_are_learned() -> None:
    assert pieces("char", "The text") == ["The", " text"]
    assert pieces("char", "é") == ["<0xC3>", "<0xA9>"]


def test_alphabets_can_be_bounded() -> None:
    for config in (
        BPE.Config(vocab_size=300, level="char", alphabet=3),
        Unigram.Config(vocab_size=300, alphabet=3),
    ):
        one = tokenizer.build(config)
        one.train(["ttttt eee  x"])
        known = {token for token in one._library.get_vocab() if len(token) == 1}
        assert known == {"t", "e", " "}
        assert one.decode(one.encode("text")) == "text"
    with pytest.raises(RequestError, match=r"70 different characters, .* has room for 39: raise"):
        tokenizer.build(BPE.Config(vocab_size=300, level="char")).train(
            ["".join(map(chr, range(0x4E00, 0x4E46)))]
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_and_loaded_they_are_the_same(name: str, tmp_path: Path) -> None:
    one = made(name)
    one.save(tmp_path / "t.json")
    again = type(one).load(tmp_path / "t.json")
    assert again.fingerprint == one.fingerprint
    for field in ("level", "unseen", "control", "vocab_size"):
        wanted = one.vocab_size if field == "vocab_size" else getattr(CONFIGS[name], field, None)
        assert getattr(again.config, field, None) == wanted
    assert again.encode(TEXT + "é日\x00") == one.encode(TEXT + "é日\x00")


def test_bytes_are_in_order_after_the_control_tokens() -> None:
    one = tokenizer.build(Byte.Config(vocab_size=4096, control=["<|mask|>"]))
    one.train(pytest.fail("a vocabulary of bytes reads no text") for _ in range(1))
    assert one.vocab_size == 262
    assert one.encode("aé") == [6 + 97, 6 + 0xC3, 6 + 0xA9]
    assert one.encode_batch(["", "b"]) == [[], [6 + 98]]
    assert [*one.control] == [*CONTROL, "<|mask|>"]
    assert one.special["mask_token"] == "<|mask|>"
    with pytest.raises(RequestError, match=r"vocab_size=200 .* 261: all bytes and 5 control"):
        Byte.Config(vocab_size=200)


def test_the_librarys_own_encoding_of_bytes_is_the_same() -> None:
    text = "naïve 日本 \x00\n" + TEXT
    one = made("byte")
    assert one.encode(text) == one._library.encode(text).ids


def test_options_that_would_do_nothing_are_refused() -> None:
    for fields in ({"unseen": "unknown"}, {"alphabet": 9}):
        with pytest.raises(RequestError, match="at level=byte"):
            BPE.Config(**fields)


@pytest.mark.parametrize("kinds", [("bpe", Unigram), ("byte", BPE), ("char", Byte)])
def test_files_of_other_options_are_refused(kinds: tuple[str, type], tmp_path: Path) -> None:
    name, other = kinds
    one = tokenizer.build(BPE.Config(vocab_size=300)) if name == "bpe" else made(name)
    one.train([TEXT])
    one.save(tmp_path / "t.json")
    if name == "byte":  # bytes are byte-level BPE without a merge
        assert other.load(tmp_path / "t.json").encode("a") == one.encode("a")
        return
    with pytest.raises(RequestError, match="is no tokenizer of option"):
        other.load(tmp_path / "t.json")
