"""Directories that `transformers` reads with equal ids, and we read again."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from txlab.core.errors import RunError
from txlab.data.chat.template import Template
from txlab.data.tokenizer import BPE, Byte, Pretrained, Tokenizer, Unigram, WordPiece, directory
from txlab.testing import tiny

CONFIGS = [
    BPE.Config(vocab_size=300, control=["<|mask|>"]),
    BPE.Config(vocab_size=400, level="char"),
    BPE.Config(vocab_size=120, level="char", unseen="unknown"),
    Unigram.Config(vocab_size=400),
    Unigram.Config(vocab_size=120, unseen="unknown"),
    WordPiece.Config(vocab_size=300),
    WordPiece.Config(vocab_size=300, lower=True),
    Byte.Config(),
]
HARD = [
    *(
        "",
        "Note 1. The gradient,  of\n\tquery!",
        "caf\u00e9 cafe\u0301 日本 👩‍👩‍👧",
        "\x00\ufeff \u0301",
    ),
    *("it's 12345 x" + "y" * 200, "▁ <0x41> <unk> [UNK]"),
]


@pytest.fixture(params=CONFIGS, ids=lambda c: f"{c.name}-{getattr(c, 'unseen', '')}")
def made(request: Any) -> Tokenizer:
    from txlab.data.tokenizer import tokenizer

    one = tokenizer.build(request.param)
    one.train(tiny.texts())
    return one


def test_transformers_makes_equal_ids(made: Tokenizer, tmp_path: Path) -> None:
    directory.write(made, tmp_path / "d")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "d")
    for text in [*HARD, *tiny.texts(5)]:
        ids = made.encode(text)
        assert theirs.encode(text, add_special_tokens=False) == ids
        assert theirs.encode(text) == [made.bos_id, *ids]
        assert theirs.decode(ids, skip_special_tokens=True) == made.decode(ids)
    assert len(theirs) == made.vocab_size
    names = {name: getattr(theirs, name) for name in made.special}
    assert names == made.special
    chat = [{"role": "user", "content": "a key?"}, {"role": "assistant", "content": "a mask."}]
    rendered = theirs.apply_chat_template(chat, tokenize=False)
    assert rendered == Template(made).render(chat)
    assert theirs.apply_chat_template(chat)["input_ids"] == Template(made).encode(chat).ids


def test_both_ways_of_loading_give_it_back(made: Tokenizer, tmp_path: Path) -> None:
    made.template = "{{ messages[0].content }}"
    directory.write(made, tmp_path / "d")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["d"]
    again = [Pretrained.load(tmp_path / "d"), type(made).load(tmp_path / "d" / "tokenizer.json")]
    for one in again:
        assert one.fingerprint == made.fingerprint
        for text in HARD:
            assert one.encode(text) == made.encode(text)
            assert one.decode(one.encode(text)) == made.decode(made.encode(text))
        for name in ("bos_id", "eos_id", "pad_id", "unk_id", "control", "end_ids", "special"):
            assert getattr(one, name) == getattr(made, name), name
        assert (one.exact, one.vocab_size) == (made.exact, made.vocab_size)
    assert again[0].template == made.template


def test_a_directory_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    made = Byte(Byte.Config())
    made.train([])
    monkeypatch.setattr(directory, "texts", lambda _: {"a": "1", "no/such/folder": "2"})
    with pytest.raises(RunError, match="make room"):
        directory.write(made, tmp_path / "d")
    assert not [*tmp_path.iterdir()]


def test_the_length_of_the_context_is_said(tmp_path: Path) -> None:
    made = Byte(Byte.Config())
    made.train([])
    settings = json.loads(directory.texts(made, length=77)["tokenizer_config.json"])
    assert settings["model_max_length"] == 77
