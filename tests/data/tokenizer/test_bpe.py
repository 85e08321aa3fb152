import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data.tokenizer import BPE, tokenizer
from txlab.data.tokenizer import trained as module
from txlab.data.tokenizer.control import CONTROL

WORDS = "The tokenizer reads bytes; it's the bytes it merges, 1234 times or 99.\n" * 20


@pytest.fixture(scope="module")
def trained() -> BPE:
    made = tokenizer.build(BPE.Config(vocab_size=280))
    made.train([WORDS])
    return made


HARD = [
    "  a  b\n\t",
    "caf\u00e9 cafe\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\x00 \ufeff \u0301 lone mark",
    "\r\n\r \u2028\u3000",
    "日本語のテキスト",
    "x" * 500,
    " " * 500,
    "",
]


@pytest.mark.parametrize("text", HARD)
def test_round_trip_is_exact(trained: BPE, text: str) -> None:  # TOK-01
    assert trained.decode(trained.encode(text)) == text
    assert trained.decode_bytes(trained.encode(text)) == text.encode()


@given(st.text())
def test_any_text_survives(trained: BPE, text: str) -> None:
    assert trained.decode(trained.encode(text)) == text


def test_lone_bytes_are_kept_as_bytes(trained: BPE) -> None:
    lone = [i for i in range(trained.vocab_size) if trained.decode_bytes([i]) == b"\x80"]
    assert len(lone) == 1
    assert trained.decode(lone) == "\ufffd"


@pytest.mark.parametrize("spelling", CONTROL)
def test_spelled_control_tokens_stay_text(trained: BPE, spelling: str, tmp_path: Path) -> None:
    """TOK-02; a saved tokenizer forgets this switch of the library, so load is tested as well."""
    trained.save(tmp_path / "t.json")
    for mine in (trained, BPE.load(tmp_path / "t.json")):
        text = f"say {spelling}{spelling} twice"
        for ids in (mine.encode(text), *mine.encode_batch([text, spelling])):
            assert not set(mine.control.values()) & set(ids)
        assert mine.decode(mine.encode(text)) == text


def test_training_on_control_spellings_makes_no_control_token() -> None:
    made = tokenizer.build(BPE.Config(vocab_size=400))
    made.train([f"{CONTROL[0]} {CONTROL[1]}" * 200, "".join(CONTROL) * 200])
    assert not set(range(5)) & set(made.encode("".join(CONTROL) + " ".join(CONTROL)))


def test_control_tokens_come_first_and_stand_for_no_bytes(trained: BPE) -> None:
    assert (trained.bos_id, trained.eos_id, trained.pad_id) == (0, 1, 2)
    assert trained.control == {spelling: i for i, spelling in enumerate(CONTROL)}
    assert trained.end_ids == (1, 4)
    counts = trained.token_bytes()
    assert counts.shape == (trained.vocab_size,)
    assert counts[:5].tolist() == [0] * 5
    assert int(counts[5:].min()) == 1
    ids = [trained.bos_id, *trained.encode("héllo"), trained.eos_id]
    assert int(counts[ids].sum()) == len("héllo".encode())
    assert trained.decode(ids) == "héllo"


def test_save_and_load_keep_ids(trained: BPE, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    trained.save(file)
    again = BPE.load(file)
    assert again.fingerprint == trained.fingerprint
    assert again.encode_batch([*HARD, WORDS]) == trained.encode_batch([*HARD, WORDS])
    again.save(tmp_path / "second.json")
    assert (tmp_path / "second.json").read_bytes() == file.read_bytes()


def test_vocabulary_has_the_wanted_size_or_what_the_text_gives(trained: BPE) -> None:
    assert trained.vocab_size == 280
    small = tokenizer.build(BPE.Config(vocab_size=4096))
    small.train(["abab"])
    assert 261 <= small.vocab_size < 270


def test_training_is_the_same_in_another_process_with_other_threads() -> None:
    texts = ["ab ba cd dc " * 9, "xy yx zz qq " * 9, "when what who why " * 9] * 3
    mine = tokenizer.build(BPE.Config(vocab_size=300))
    mine.train(texts)
    code = (
        "from txlab.data.tokenizer import BPE\nb = BPE(BPE.Config(vocab_size=300))\n"
        f"b.train({texts})\nprint(b.fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "5", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == mine.fingerprint


def test_long_texts_are_cut_where_merges_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(random.Random(0).choices(["the", "bytes", ";", "it's", "x1", " ", "\n"], k=3000))
    made = tokenizer.build(BPE.Config(vocab_size=300))
    made.train([text])
    whole = made.encode(text)
    monkeypatch.setattr(module, "SPAN", 60)
    assert len(list(made.pieces(text))) > 100
    assert "".join(made.pieces(text)) == text
    assert made.encode(text) == whole
    assert made.decode(made.encode("y" * 1000)) == "y" * 1000


def test_half_a_surrogate_pair_is_refused(trained: BPE) -> None:
    with pytest.raises(RequestError, match=r"character 2 .*U\+D83D"):
        trained.encode("ab\ud83d")


@pytest.mark.parametrize("ids", [[-1], [280], [3, 100000]])
def test_ids_outside_of_the_vocabulary_are_refused(trained: BPE, ids: list[int]) -> None:
    with pytest.raises(RequestError, match="outside of the tokenizer's 0 to 279"):
        trained.decode(ids)


def test_vocab_size_below_the_bytes_is_refused() -> None:
    with pytest.raises(RequestError, match=r"vocab_size=200 .* at least 261"):
        BPE.Config(vocab_size=200)
    with pytest.raises(RequestError, match=r"vocab_size=1000000000 .* at most 16777216"):
        BPE.Config(vocab_size=10**9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "NFC"}}, "normalises"),
        ({"added_tokens": []}, "first tokens"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}, "WordLevel"),
    ],
)
def test_foreign_files_are_refused_by_name(
    trained: BPE, tmp_path: Path, change: dict, reason: str
) -> None:
    file = tmp_path / "tokenizer.json"
    trained.save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(RequestError, match=rf"tokenizer\.json.*{reason}"):
        BPE.load(file)


def test_broken_and_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"model": ')
    with pytest.raises(RequestError, match=r"a\.json is no tokenizer\.json"):
        BPE.load(tmp_path / "a.json")
    with pytest.raises(RequestError, match=r"b\.json: No such file"):
        BPE.load(tmp_path / "b.json")


def test_further_control_tokens_follow_the_first_ones(tmp_path):
    made = BPE(BPE.Config(vocab_size=300, control=["<mask>", "<sep>"]))
    made.train(["the <mask> is no mask, the <sep> no separator. " * 3])
    made.save(tmp_path / "tokenizer.json")
    for one in (made, BPE.load(tmp_path / "tokenizer.json")):
        assert [one.control[name] for name in ("<mask>", "<sep>")] == [5, 6]
        assert not {5, 6} & {*one.encode("a <mask><sep>")}
        assert one.decode(one.encode("a <mask>")) == "a <mask>"
    for wrong in (["<mask>", "<mask>"], ["<|bos|>"], [""]):
        with pytest.raises(RequestError, match="control="):
            BPE.Config(control=wrong)
    with pytest.raises(RequestError, match="at least 263"):
        BPE.Config(vocab_size=262, control=["<mask>", "<sep>"])
