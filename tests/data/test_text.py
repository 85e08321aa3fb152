import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from txlab.core.errors import RequestError, RunError
from txlab.data import IGNORE, Data, Text, data, encoding
from txlab.data.text import Documents
from txlab.data.tokenizer import BPE, WordPiece

Make = Callable[..., Text]
PROSE = "It was the best of lines, it was the worst of lines; number {i} of them all.\n"


def write(file: Path, documents: int = 40, lines: int = 3) -> str:
    entries = (
        {"text": "".join(PROSE.format(i=f"{d}-{n}") for n in range(lines))}
        for d in range(documents)
    )
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return str(file)


def texts(made: Data, part: str) -> list[str]:
    """The documents of one side, from the tokens of its rows."""
    rows = getattr(made, part)
    ids = [
        int(t)
        for i in range(len(rows))
        for t, v in zip(rows[i]["tokens"], rows[i]["valid"], strict=True)
        if v
    ]
    return [made.tokenizer.decode(d) for d in _split(ids, made.tokenizer.bos_id)]


def _split(ids: list[int], mark: int) -> list[list[int]]:
    places = [i for i, token in enumerate(ids) if token == mark]
    return [ids[a:b] for a, b in zip(places, [*places[1:], len(ids)], strict=True)]


def test_all_documents_arrive_once_on_one_side(make_text: Make, tmp_path: Path) -> None:
    made = make_text(path=write(tmp_path / "a.jsonl"), val_fraction=0.2)
    wanted = [json.loads(line)["text"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    train, val = texts(made, "train"), texts(made, "val")
    assert Counter(train + val) == Counter(wanted)
    assert made.facts["train_documents"] == len(train) > len(val) == made.facts["val_documents"] > 0
    assert made.facts["documents"] == 40
    assert made.facts["bytes"] == sum(map(len, wanted))
    assert made.facts["train_bytes"] == sum(map(len, train))


def test_long_documents_are_one_document(
    make_text: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[BPE.pieces.__module__], "SPAN", 40)
    monkeypatch.setattr(encoding, "BATCH", 100)
    made = make_text(path=write(tmp_path / "a.jsonl"), val_fraction=0.2)
    wanted = [json.loads(line)["text"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert Counter(texts(made, "train") + texts(made, "val")) == Counter(wanted)


def test_facts_count_what_is_supervised(make_text: Make, tmp_path: Path) -> None:
    made = make_text(path=write(tmp_path / "a.jsonl"), val_fraction=0.2)
    labels = torch.cat([made.val[i]["labels"] for i in range(len(made.val))])
    labels = labels[labels != IGNORE]
    assert len(labels) == made.facts["val_supervised"]
    assert int(made.tokenizer.token_bytes()[labels].sum()) == made.facts["val_bytes"]
    shares = [n / len(labels) for n in Counter(labels.tolist()).values()]
    assert made.facts["unigram_entropy"] == pytest.approx(-sum(p * math.log(p) for p in shares))
    assert len(made.facts["sha256"]) == 64
    json.dumps(made.facts)


def test_control_spellings_in_a_corpus_stay_text(make_text: Make, tmp_path: Path) -> None:  # TOK-02
    (tmp_path / "a.txt").write_text("begin <|bos|> and <|eos|> end\n" * 30)
    made = make_text(path=str(tmp_path / "a.txt"), val_fraction=0)
    tokens = torch.cat([made.train[i]["tokens"] for i in range(len(made.train))])
    assert int((tokens == made.tokenizer.bos_id).sum()) == 1
    assert int((tokens == made.tokenizer.eos_id).sum()) <= 1
    assert len(made.val) == 0
    assert made.facts["unigram_entropy"] is None


def test_a_second_run_reads_the_cache(
    make_text: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.jsonl")
    first = make_text(path=path)
    monkeypatch.setattr(BPE, "train", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(BPE, "encode_batch", lambda *_: pytest.fail("tokenised again"))
    again = make_text(path=path, batch_size=8, context=5)
    assert {**again.facts, "context": 8, "train_rows": 0, "val_rows": 0} == {
        **first.facts,
        "train_rows": 0,
        "val_rows": 0,
    }


def test_a_renamed_file_is_the_same_text(make_text: Make, tmp_path: Path) -> None:
    first = make_text(path=write(tmp_path / "v1.2.jsonl"))
    os.rename(tmp_path / "v1.2.jsonl", tmp_path / "v1.3.jsonl")
    assert make_text(path=str(tmp_path / "v1.3.jsonl")).facts["cache"] == first.facts["cache"]


def test_changed_text_or_settings_are_made_anew(make_text: Make, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    made = [
        make_text(path=path),
        make_text(path=path, val_fraction=0.3),
        make_text(path=path, vocab_size=310),
    ]
    write(tmp_path / "a.jsonl", documents=41)
    made.append(make_text(path=path))
    assert len({m.facts["cache"] for m in made}) == 4


def test_the_split_does_not_depend_on_the_seed(tmp_path: Path) -> None:
    config = Text.Config(path=write(tmp_path / "a.jsonl"), cache_dir=str(tmp_path / "cache"))
    one, two = (data.build(config, BPE.Config(vocab_size=300), context=8, seed=s) for s in (1, 2))
    for made in (one, two):
        made.prepare()
    assert one.facts == two.facts
    assert one.step_batches().indices(0) != two.step_batches().indices(0)


def test_a_given_tokenizer_is_used(make_text: Make, tmp_path: Path) -> None:
    first = make_text(path=write(tmp_path / "a.jsonl"), vocab_size=320)
    first.tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "b.txt").write_text("Quite another text about other things. " * 20)
    config = Text.Config(path=str(tmp_path / "b.txt"), cache_dir=str(tmp_path / "cache"))
    for given in (first.tokenizer, BPE.Config(path=str(tmp_path / "tokenizer.json"))):
        made = data.build(config, given, context=8)
        made.prepare()
        assert made.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_relative_paths_are_of_the_launch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # HYD-03
    monkeypatch.chdir(tmp_path)
    config = Text.Config(path="some/*.txt", cache_dir="cache")
    tokens = BPE.Config(path="t.json")
    monkeypatch.chdir("/")
    assert config.path == os.path.join(tmp_path, "some/*.txt")
    assert config.cache_dir == str(tmp_path / "cache")
    assert tokens.path == str(tmp_path / "t.json")
    assert Text.Config(path="~/x.txt").path == os.path.expanduser("~/x.txt")


def test_text_shorter_than_a_row_is_refused(make_text: Make, tmp_path: Path) -> None:  # DATA-01
    (tmp_path / "a.txt").write_text("0123456")  # digits by threes: not merged in so short a text
    with pytest.raises(RequestError, match=r"a\.txt: 9 tokens .*context \+ 1 = 10"):
        make_text(path=str(tmp_path / "a.txt"), val_fraction=0, context=9)
    assert len(make_text(path=str(tmp_path / "a.txt"), val_fraction=0, context=8).train) == 1


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("a.txt", "", "no text, 1 file.* 1 blank"),
        ("a.txt", " \n\n\t", "no text, 1 file.* 1 blank"),
        ("a.jsonl", "\n\n", "no text, 1 file.* nothing"),
        ("a.jsonl", '{"text": " "}\n{"text": ""}', "no text, 1 file.* 2 blank"),
    ],
)
def test_no_text_is_refused(
    make_text: Make, tmp_path: Path, name: str, raw: str, reason: str
) -> None:
    (tmp_path / name).write_text(raw)
    with pytest.raises(RequestError, match=reason):
        make_text(path=str(tmp_path / name))


def test_bad_input_leaves_no_half_written_cache(make_text: Make, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.jsonl"))
    path.write_text(path.read_text() + '{"body": 1}\n')
    with pytest.raises(RequestError, match=r"a\.jsonl, line 41, byte \d+: no field 'text'"):
        make_text(path=str(path))
    assert [f for f in (tmp_path / "cache").rglob("*") if f.is_file()] == []


def test_a_damaged_cache_is_refused_by_name(make_text: Make, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    file = Path(make_text(path=path).facts["cache"]) / "train-00000.tokens"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        RequestError, match=r"train-00000\.tokens: it has .*; delete it and run again"
    ):
        make_text(path=path)
    file.unlink()
    with pytest.raises(RequestError, match=r"train-00000\.tokens: it cannot be read"):
        make_text(path=path)


def test_an_unusable_cache_folder_is_refused(make_text: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match=r"file/cache: Not a directory; .*data\.cache_dir"):
        make_text(path=write(tmp_path / "a.jsonl"), cache_dir=str(tmp_path / "file" / "cache"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 10, "micro_batch_size": 4}, "divisor of batch_size=10"),
        ({"micro_batch_size": 0}, "micro_batch_size=0"),
        ({"val_fraction": 1.0}, r"val_fraction=1\.0"),
        ({"val_fraction": -0.1}, "val_fraction"),
        ({"path": ""}, "path="),
    ],
)
def test_impossible_settings_are_refused(fields: dict, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        Text.Config(**fields)


def test_a_field_without_files_is_refused(make_text: Make) -> None:
    with pytest.raises(RequestError, match=r"field=body is for files"):
        make_text(field="body")


def test_previews_show_control_tokens(make_text: Make, tmp_path: Path) -> None:
    made = make_text(path=write(tmp_path / "a.jsonl"), context=120)
    shown = made.preview(2)
    assert len(shown) == 2
    assert any("<|eos|><|bos|>It was the" in row for row in shown)


@pytest.mark.parametrize("during", ["train", "encode_batch"])
def test_text_that_changes_while_it_is_read_is_not_cached(
    make_text: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    path = write(tmp_path / "a.jsonl")
    done = getattr(BPE, during)

    def meanwhile(self: BPE, texts: object) -> object:
        result = done(self, texts)
        write(tmp_path / "a.jsonl", documents=39)
        return result

    monkeypatch.setattr(BPE, during, meanwhile)
    with pytest.raises(RunError, match=r"a\.jsonl was changed while it was read"):
        make_text(path=path)
    left = {f.name for f in (tmp_path / "cache").rglob("*") if f.is_file()}
    assert "facts.json" not in left
    assert during == "encode_batch" or left == set()


def test_several_processes_may_prepare_at_once(make_text: Make, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: make_text(path=path), range(4)))
    assert all(m.facts == made[0].facts for m in made)
    assert all(texts(m, "train") == texts(made[0], "train") for m in made)
    assert len([f for f in (tmp_path / "cache").rglob("*") if f.is_file()]) == 4


def test_joined_documents_have_no_borders(make_text: Make, tmp_path: Path) -> None:
    made = make_text(path=write(tmp_path / "a.jsonl"), documents=Documents.joined)
    assert set(made.step_batches().at(0)[0]) <= {"tokens", "labels", "valid"}


def test_unknown_tokens_are_counted(make_text: Make, tmp_path: Path) -> None:  # TOK-01
    (tmp_path / "a.txt").write_text("the cat sat on the mat, the rat sat\n" * 40)
    known = ["the", "cat", "sat", "on", "mat", ","]
    given = WordPiece(WordPiece.Config(vocab_size=100))
    given.train([" ".join(known) * 9])
    settings = Text.Config(
        path=str(tmp_path / "a.txt"), cache_dir=str(tmp_path / "cache"), val_fraction=0
    )
    made = data.build(settings, given, context=8)
    made.prepare()
    assert made.facts["train_unknown"] == 40
    assert "train_unknown" not in make_text(path=str(tmp_path / "a.txt"), val_fraction=0).facts


def test_notes_say_what_is_left_out(make_text: Make, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for i in range(6):
        (home / f"{i}.txt").write_text(PROSE.format(i=i) * 4)
    (home / "picture.png").write_bytes(b"")
    (home / "bad.txt").write_bytes(b"caf\xe9")
    made = make_text(path=str(home), on_error="skip")
    assert made.facts["dropped_unreadable"] == made.facts["unread_files"] == 1
    said = "\n".join(made.notes)
    assert re.search(r"left out: .*bad\.txt, line 1, byte 3: 0xE9 is no UTF-8", said)
    assert "1 other file(s) of the folder are of no kind that is read" in said
    mix = [{"path": str(home)}, {"path": str(home / "[0-3].txt"), "name": "few", "weight": 3}]
    made = make_text(mix=mix, on_error="skip", val_fraction=0)
    assert made.facts["files"] == 11
    assert re.search(r"an epoch goes through home 0\.\d+ times, few \d\.\d+ times", made.notes[-1])
