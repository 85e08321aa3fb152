"""Tokenizers of other people's models, written here by the libraries that wrote theirs."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from txlab.core.errors import RequestError
from txlab.data.tokenizer import Pretrained
from txlab.data.tokenizer.figures import Figures
from txlab.data.tokenizer.making import obtain

TEXTS = ["The quick brown fox jumps over the lazy dog, 1234 times. " * 20, "naïve café 日本 " * 9]
HARD = ["  a  b\n\t", "café", "👩‍👩‍👧", "<|im_end|> and <|endoftext|>", "\x00", ""]
NAMES = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(folder: Path, *, adds_bos: bool = False, **names: str) -> Path:
    """A directory as the Hub has them for byte-level BPE with turn markers."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
    library.decoder = decoders.ByteLevel()  # type: ignore
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=340, special_tokens=SPECIAL, initial_alphabet=alphabet),
    )
    if adds_bos:
        library.post_processor = processors.TemplateProcessing(  # type: ignore
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    PreTrainedTokenizerFast(tokenizer_object=library, **(names or NAMES)).save_pretrained(folder)
    return folder


def metaspace(folder: Path) -> Path:
    """A SentencePiece-like one: spaces are letters, unknown characters fall back to bytes."""
    library = Library(models.BPE(byte_fallback=True, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")  # type: ignore
    library.decoder = decoders.Sequence(  # type: ignore
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    library.train_from_iterator(
        TEXTS[:1], trainers.BpeTrainer(vocab_size=330, special_tokens=special[:3])
    )
    parts = json.loads(library.to_str())
    vocabulary = parts["model"]["vocab"]
    for byte in special[3:]:
        vocabulary[byte] = len(vocabulary)
    library = Library.from_str(json.dumps(parts))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=library, **names).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("adds_bos", [False, True])
def test_ids_are_those_of_transformers(tmp_path: Path, adds_bos: bool) -> None:  # SFT-05
    theirs = PreTrainedTokenizerFast.from_pretrained(byte_level(tmp_path, adds_bos=adds_bos))
    mine = Pretrained.load(tmp_path)
    for text in [*TEXTS, *(h for h in HARD if "<|" not in h)]:
        assert mine.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert mine.bos_id == (0 if adds_bos else None)
    assert (mine.eos_id, mine.pad_id, mine.end_ids) == (2, 2, (2,))
    assert mine.vocab_size == len(theirs)
    assert mine.control == {spelling: i for i, spelling in enumerate(SPECIAL)}


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_texts_come_back(tmp_path: Path, make) -> None:  # TOK-01, TOK-02
    mine = Pretrained.load(make(tmp_path))
    for text in HARD:
        ids = mine.encode(text)
        assert not set(mine.control.values()) & set(ids)
        back = mine.decode([*ids, mine.eos_id])
        # SentencePiece's rules take one space away from the beginning.
        assert back == text or (make is metaspace and " " + back == text)
        assert mine.decode_bytes(ids).decode().removeprefix(" ") == text.removeprefix(" ")


def test_pieces_of_a_sentence_keep_their_spaces(tmp_path: Path) -> None:
    """Streaming decodes token by token: a space before a word is part of its token."""
    mine = Pretrained.load(metaspace(tmp_path))
    ids = mine.encode("The quick dog é")
    assert b"".join(mine.decode_bytes([i]) for i in ids) == " The quick dog é".encode()
    assert mine.decode(ids) == "The quick dog é"


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_saved_it_needs_its_directory_no_more(tmp_path: Path, make) -> None:
    folder = make(tmp_path / "hub")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    mine = Pretrained.load(folder)
    assert (mine.template, mine.end_ids) == ("{{ messages }}", (2, 0))
    mine.save(tmp_path / "saved" / "tokenizer.json")
    again = Pretrained.load(tmp_path / "saved" / "tokenizer.json")
    for name in ("bos_id", "eos_id", "pad_id", "control", "special", "end_ids", "template"):
        assert getattr(again, name) == getattr(mine, name)
    assert again.fingerprint == mine.fingerprint
    assert again.encode_batch([*TEXTS, *HARD]) == mine.encode_batch([*TEXTS, *HARD])
    again.save(tmp_path / "second.json")
    assert (tmp_path / "second.json").read_bytes() == (
        tmp_path / "saved" / "tokenizer.json"
    ).read_bytes()


def test_special_tokens_can_be_named(tmp_path: Path) -> None:
    folder = byte_level(tmp_path, unk_token="<|endoftext|>")
    with pytest.raises(RequestError, match=r"which token ends a text; .*tokenizer\.eos=TOKEN"):
        Pretrained.load(folder)
    chosen = {"bos": "<|im_start|>", "eos": "<|im_end|>", "pad": "<|endoftext|>"}
    mine = Pretrained.from_path(Pretrained.Config(path=str(folder), **chosen))
    assert (mine.bos_id, mine.eos_id, mine.pad_id) == (1, 2, 0)
    with pytest.raises(RequestError, match=r"pad_token '<pad>' is no token of it"):
        Pretrained.from_path(Pretrained.Config(path=str(folder), eos="<|im_end|>", pad="<pad>"))


def test_without_a_file_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"tokenizer=pretrained is .*tokenizer\.path=PATH"):
        obtain(Pretrained.Config(), cache=tmp_path, source="s", train=pytest.fail)
    with pytest.raises(RequestError, match=r"tokenizer\.json: No such file"):
        Pretrained.load(tmp_path)
    (byte_level(tmp_path) / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(RequestError, match=r"tokenizer_config\.json cannot be read"):
        Pretrained.load(tmp_path)


def test_a_byte_that_has_no_letter_is_lost_and_counted(tmp_path: Path) -> None:
    folder = byte_level(tmp_path)
    parts = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = parts["model"]["vocab"]
    vocabulary["unused"] = vocabulary.pop("Ā")  # NUL
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    mine = Pretrained.load(folder)
    assert not mine.exact
    assert mine.decode(mine.encode("a\x00b")) == "ab"
    assert Figures(mine).of("a\x00b\x00").lost == 2
    assert Figures(Pretrained.load(byte_level(tmp_path / "whole"))).of("a\x00").lost == 0


def test_a_tokenizer_of_bert_begins_and_ends_with_its_own_tokens(tmp_path: Path) -> None:
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {s: i for i, s in enumerate([*names, "he", "##llo", "a", "."])}
    library = Library(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)  # type: ignore
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore
    library.decoder = decoders.WordPiece()  # type: ignore
    library.post_processor = processors.TemplateProcessing(  # type: ignore
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    keys = {f"{s.strip('[]').lower()}_token": s for s in names}
    PreTrainedTokenizerFast(tokenizer_object=library, **keys).save_pretrained(tmp_path)
    mine = Pretrained.load(tmp_path)
    assert (mine.bos_id, mine.eos_id, mine.pad_id, mine.unk_id) == (2, 3, 0, 1)
    assert mine.special["mask_token"] == "[MASK]"
    assert mine.encode("Hello  a. [MASK]")[:4] == [5, 6, 7, 8]
    assert 4 not in mine.encode("Hello [MASK]")
    assert mine.decode([2, 5, 6, 7, 8, 3]) == "hello a."
    assert mine.decode_bytes([5, 6, 7, 8]) == b" hello a."
