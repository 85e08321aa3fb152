"""Tokenizers of SmolLM2 (byte-level BPE, chats) and MiniLM (WordPiece, small letters) as theirs.

TXLAB_SMOLLM2=DIR and TXLAB_MINILM=DIR name their Hugging Face directories.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.real.strings import scripts, strings
from txlab.data.chat.template import Template
from txlab.data.tokenizer import Pretrained, cutting
from txlab.data.tokenizer.reading import byte_letters

PLACES = {name: os.environ.get(f"TXLAB_{name.upper()}") for name in ("smollm2", "minilm")}
N = 10_000
pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=PLACES)
def folder(request: Any) -> Path:
    place = PLACES[request.param]
    if place is None:
        pytest.skip(f"TXLAB_{request.param.upper()} names no directory")
    return Path(place)


def theirs(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_texts_are_varied() -> None:
    texts = strings(N)
    assert len(texts) == N
    assert len({*texts}) > 0.99 * N
    assert len(scripts()) > 150
    assert len(set().union(*texts)) > 20_000


def test_ids_and_texts_equal_transformers(folder: Path) -> None:
    ours, peer = Pretrained.load(folder), theirs(folder)
    texts = [t for t in strings(N) if not any(spelling in t for spelling in ours.control)]
    assert len(texts) > 0.999 * N
    found = ours.encode_batch(texts)
    expected = peer(texts, add_special_tokens=False)["input_ids"]
    other = [n for n, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
    assert not other, f"{len(other)} of {len(texts)}: {texts[other[0]]!r}"
    back = [ours.decode(ids) for ids in found]
    wanted = peer.batch_decode(expected, skip_special_tokens=True)
    other = [n for n, (a, b) in enumerate(zip(back, wanted, strict=True)) if a != b]
    assert not other, f"{len(other)}: {back[other[0]]!r} for {wanted[other[0]]!r}"
    exact = sum(text == mine for text, mine in zip(texts, back, strict=True))
    unknown = 0 if ours.unk_id is None else sum(ids.count(ours.unk_id) for ids in found)
    print(
        f"{folder.name}: {len(texts):,} texts, {sum(map(len, found)):,} ids and all texts equal; "
        f"{exact:,} come back as they were, {unknown:,} unknown"
    )
    if ours.byte_level:  # SmolLM2's lacks the letters of 21 bytes, and the library drops those
        lacking = [b for letter, b in byte_letters().items() if letter not in peer.get_vocab()]
        whole = [not {*text.encode()} & {*lacking} for text in texts]
        assert whole == [text == mine for text, mine in zip(texts, back, strict=True)]


def test_special_tokens_are_theirs(folder: Path) -> None:
    ours, peer = Pretrained.load(folder), theirs(folder)
    assert ours.vocab_size == len(peer)
    for name, spelling in ours.special.items():
        wanted = getattr(peer, name, None)
        assert spelling == wanted or wanted is None, name
    assert ours.pad_id in (peer.pad_token_id, ours.eos_id)
    text = "a b"
    begun = [] if ours.bos_id is None else [ours.bos_id]
    assert peer.encode(text)[: len(begun) + 2] == [*begun, *ours.encode(text)][: len(begun) + 2]


def test_chats_are_rendered_as_theirs(folder: Path) -> None:  # SFT-05
    ours, peer = Pretrained.load(folder), theirs(folder)
    if ours.template is None:
        assert peer.chat_template is None
        return
    template, texts = Template(ours), strings(300, seed=1)
    for n in range(0, 300, 5):
        system, *rest = texts[n : n + 5]
        roles = ["user", "assistant", "user", "assistant"]
        chat = [{"role": r, "content": t} for r, t in zip(roles, rest, strict=True)]
        chat = [{"role": "system", "content": system}, *chat] if n % 2 else chat
        for messages, asks in ((chat, False), (chat[:-1], True)):
            rendered = peer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=asks
            )
            assert template.render(messages, generation_prompt=asks) == rendered


def test_a_long_text_in_parts_has_the_same_ids(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(cutting, "SPAN", 1000)
    ours = Pretrained.load(folder)
    texts = [t for t in strings(2_000, seed=2) if not any(s in t for s in ours.control)]
    text = " ".join(texts)
    parts = list(ours.pieces(text))
    longest = max(map(len, parts))
    print(f"{folder.name}: {len(text):,} characters in {len(parts)} parts of at most {longest}")
    assert longest < 5_000
    assert ours.encode(text) == ours._library.encode(text, add_special_tokens=False).ids
