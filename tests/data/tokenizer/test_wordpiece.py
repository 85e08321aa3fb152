"""WordPiece: what it knows, what it loses, and how that is counted."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from txlab.core.errors import RequestError
from txlab.data.tokenizer import Pretrained, WordPiece
from txlab.data.tokenizer.control import CONTROL, UNKNOWN

TEXT = "The cat, the cats & the unhappy kätzchen 日本 sat on 12 mats; Zoë's mat! "


@pytest.fixture(scope="module")
def trained() -> WordPiece:
    made = WordPiece(WordPiece.Config(vocab_size=200))
    made.train([TEXT * 5])
    return made


def tokens(made: WordPiece | Pretrained, text: str) -> list[str]:
    return [made._library.id_to_token(i) for i in made.encode(text)]


def test_one_unknown_character_makes_the_word_unknown(tmp_path: Path) -> None:  # TOK-03
    vocabulary = {"[UNK]": 0, "[SEP]": 1, "he": 2, "##llo": 3, "a": 4}
    library = Library(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore
    library.decoder = decoders.WordPiece()  # type: ignore
    names = {"eos_token": "[SEP]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=library, **names).save_pretrained(tmp_path)
    made = Pretrained.load(tmp_path)
    assert tokens(made, "hello helloz a") == ["he", "##llo", "[UNK]", "a"]
    assert tokens(made, "a" * 101 + " a b") == ["[UNK]", "a", "[UNK]"]
    assert (made.unk_id, made.exact) == (0, False)
    assert made.decode(made.encode("hello  a")) == "hello a"
    assert made.decode_bytes(made.encode("hello a")) == b" hello a"


def test_the_training_text_has_nothing_unknown(trained: WordPiece) -> None:  # TOK-03
    ids = trained.encode(TEXT)
    assert trained.unk_id not in ids
    vocabulary = trained._library.get_vocab()
    for letter in {c for c in TEXT if not c.isspace()}:
        assert {letter, f"##{letter}"} <= vocabulary.keys()
    # Any word made of seen characters is known, wherever they were seen.
    assert trained.unk_id not in trained.encode("ZTë12本nuä")
    assert tokens(trained, "cats qat") == ["cats", UNKNOWN]


def test_letters_of_pieces_that_were_sampled_away_are_known(monkeypatch) -> None:
    rare = [f"{chr(0x430 + i % 32)}{chr(0x4E0 + i // 32)}{i}" for i in range(1000)]
    monkeypatch.setattr(WordPiece, "room", 4_000)
    made = WordPiece(WordPiece.Config(vocab_size=400))
    made.train(["the cat sat on the mat " * 9 + " ".join(rare)])
    assert made.sampled > 1
    assert made.unk_id not in made.encode(" ".join(rare))


def test_white_space_is_lost_and_nothing_else(trained: WordPiece) -> None:
    assert trained.decode(trained.encode("the\n\n cat ,  the mats\t!")) == "the cat, the mats!"
    assert trained.decode_bytes(trained.encode("the cats")) == b" the cats"
    ids = trained.encode(TEXT + "Mats! Cats, (12) & cats.")
    assert trained.decode_bytes(ids).decode() == " " + trained.decode(ids)


def test_a_word_above_the_limit_is_one_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WordPiece(WordPiece.Config(vocab_size=40, max_word=5))
    made.train(["abcde abcdef xyz " * 3])
    assert tokens(made, "abcdef xyz").count(UNKNOWN) == 1
    assert not {"f", "##f"} & made._library.get_vocab().keys()
    with pytest.raises(RequestError, match=r"no word of at most tokenizer\.max_word=5"):
        WordPiece(made.config).train(["abcdef" * 9])
    monkeypatch.setattr(WordPiece, "room", 1_000)  # the letters of what is left out are no words
    with pytest.raises(RequestError, match=r"no word of at most tokenizer\.max_word=5"):
        WordPiece(made.config).train([f"{'abcdef' * 9}{i}" for i in range(99)])


def test_small_letters_only_if_asked_for() -> None:
    made = WordPiece(WordPiece.Config(vocab_size=200, lower=True))
    made.train([TEXT * 5])
    assert made.normalised("Zoë") == "zoe"
    assert made.encode("ZOË'S MAT") == made.encode("zoe's mat")
    assert made.unk_id not in made.encode(TEXT)


def test_too_many_characters_are_refused_and_can_be_bounded() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E40)))
    with pytest.raises(RequestError, match=r"64 different characters, .* room for 22: raise"):
        WordPiece(WordPiece.Config(vocab_size=50)).train([text])
    made = WordPiece(WordPiece.Config(vocab_size=50, alphabet=10))
    made.train([text + text[:9] * 9])
    assert made.encode(text).count(made.unk_id) == 54
    assert made.vocab_size == 26


def test_control_tokens_come_first(trained: WordPiece, tmp_path: Path) -> None:
    assert [*trained.control] == [*CONTROL, UNKNOWN]
    assert trained.special["unk_token"] == UNKNOWN
    assert (trained.unk_id, trained.end_ids) == (5, (1, 4))
    trained.save(tmp_path / "t.json")
    again = WordPiece.load(tmp_path / "t.json")
    assert (again.unk_id, again.config.lower, again.config.max_word) == (5, False, 100)
    parts = json.loads((tmp_path / "t.json").read_text())
    parts["model"]["unk_token"] = "a"
    (tmp_path / "t.json").write_text(json.dumps(parts))
    with pytest.raises(RequestError, match=r"option 'wordpiece' \(it has no <\|unk\|>\)"):
        WordPiece.load(tmp_path / "t.json")
