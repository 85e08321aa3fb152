"""What becomes of documents: filters, copies, bad input; the same whatever is done at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txlab.core.errors import RequestError
from txlab.data import Text, encoding
from txlab.data.collection import Collection, OnError, Source
from txlab.data.filter import Filter, check_pattern
from txlab.data.tokenizer import BPE

Make = Callable[..., Text]


def collection(*paths: Path, **fields: Any) -> Collection:
    sources = [Source(path.stem, str(path), [path], "text") for path in paths]
    return Collection(sources, **fields)


def lines(file: Path, *texts: str) -> Path:
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


def test_filters_count_what_they_leave_out(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", "ab", "abcd", "xyz", "abcdefgh", " ")
    made = collection(file, wanted=Filter(3, 5, "b|z$"))
    assert list(made.texts()) == ["abcd", "xyz"]
    assert made.survey.dropped == {
        "blank": 1, "below_min_chars": 1, "above_max_chars": 1,
    }  # fmt: skip
    assert collection(file, wanted=Filter(pattern="^x")).survey.dropped["unmatched"] == 3
    (tmp_path / "b.txt").write_text("ab\ncd")
    assert list(collection(tmp_path / "b.txt", wanted=Filter(pattern=r"b\nc")).texts())


def test_copies_are_left_out_when_asked(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", "one", "two", "one", "one ", "two")
    other = lines(tmp_path / "b.jsonl", "two", "three")
    assert len(list(collection(file).texts())) == 5
    made = collection(file, other, dedup=True)
    assert list(made.texts()) == ["one", "two", "one ", "three"]
    assert made.survey.dropped == {"duplicate": 3}
    assert made.survey.documents == [3, 1]


MIXED = (
    b'\xef\xbb\xbf{"text": "good 1"}\r\n\r\n{"text": "caf\xe9"}\n{"body": 1}\n{"text": 5}\n'
    b'{"text": "good 2"}\n{"text": "cut'
)


def test_bad_input_is_left_out_and_counted_when_asked(tmp_path: Path) -> None:  # DATA-03
    file = tmp_path / "a.jsonl"
    file.write_bytes(MIXED)
    with pytest.raises(RequestError, match=r"a\.jsonl, line 3, byte 38: 0xE9 is no UTF-8"):
        _ = collection(file).survey
    made = collection(file, on_error=OnError.skip)
    assert list(made.texts()) == ["good 1", "good 2"]
    assert made.survey.dropped == {"unreadable": 4}
    assert len(made.survey.faults) == 3
    assert all(f"{file}, line {n}" in made.survey.faults[i] for i, n in enumerate((3, 4, 5)))


def test_files_that_end_too_early_are_left_out_and_counted(tmp_path: Path) -> None:
    import gzip

    good = gzip.compress(b"".join(b'{"text": "%d"}\n' % i for i in range(20_000)))
    (tmp_path / "a.jsonl.gz").write_bytes(good[: len(good) // 2])
    (tmp_path / "b.csv").write_text("body\nx\n")
    files = [tmp_path / "a.jsonl.gz", tmp_path / "b.csv", lines(tmp_path / "c.jsonl", "end")]
    made = Collection([Source("a", "a", files, "text")], on_error=OnError.skip)
    found = list(made.texts())
    assert found[:2] == ["0", "1"]
    assert found[-1] == "end"
    assert 5_000 < len(found) < 20_000
    assert made.survey.dropped == {"unreadable_files": 2}


def test_a_source_of_nothing_but_bad_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x\n")
    with pytest.raises(RequestError, match=r"no text, .* 1 unreadable .*a\.jsonl, line 1, byte 0"):
        _ = collection(tmp_path / "a.jsonl", on_error=OnError.skip).survey


def test_the_log_has_the_counts(make_text: Make, tmp_path: Path) -> None:
    from txlab.train.report import _dropped

    (tmp_path / "a.jsonl").write_bytes(MIXED + b'"}\n' + b'{"text": "good 1"}\n' * 30)
    made = make_text(
        path=str(tmp_path / "a.jsonl"), on_error="skip", dedup=True, max_chars=8, val_fraction=0
    )
    assert made.facts["documents"] == 3
    assert _dropped(made.facts) == "30 duplicate, 3 unreadable"
    assert "0xE9" in made.facts["faults"][0]
    json.dumps(made.facts)


@pytest.mark.parametrize("spelled", ["[", "(?P<a"])
def test_no_regular_expression(spelled: str) -> None:
    with pytest.raises(RequestError, match=r"data\.matches=.*no regular expression"):
        check_pattern(spelled)


def test_no_text_that_one_source_holds_out_is_in_another(tmp_path: Path) -> None:
    texts = [f"document {i} " * 5 for i in range(60)]
    one = lines(tmp_path / "a.jsonl", *texts)
    two = lines(tmp_path / "b.jsonl", *texts[20:], *(f"other {i} " * 5 for i in range(30)))
    sides: list[set[str]] = [set(), set()]
    for document in collection(one, two, val_fraction=0.1).documents():
        sides[document.held_out].add("".join(document.parts))
    assert not sides[0] & sides[1]
    assert len(sides[1]) >= 8


@pytest.mark.parametrize("limit", [1, 50, 1000, 10**9])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ids_do_not_depend_on_batches_or_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, threads: int
) -> None:
    monkeypatch.setattr(encoding, "BATCH", limit)
    monkeypatch.setattr(encoding, "THREADS", threads)
    texts = [f"document {i} " * (1 + i % 9) for i in range(50)]
    tokenizer = BPE(BPE.Config(vocab_size=300))
    tokenizer.train(texts)
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    wanted = [[bos, *ids, eos] for ids in tokenizer.encode_batch(texts)]
    found: list[int] = []
    ends: list[int] = []
    documents = (encoding.Document(0, False, [text[:7], text[7:]]) for text in texts)
    for batch in encoding.encoded(tokenizer, documents):
        (part,) = batch
        ends += (part.ends + len(found)).tolist()
        found += part.ids.tolist()
    assert found == [i for ids in wanted for i in ids]
    assert [b - a for a, b in zip([0, *ends], ends, strict=False)] == [len(ids) for ids in wanted]


def test_an_error_while_encoding_arrives(tmp_path: Path) -> None:
    class Broken(BPE):
        def encode_batch(self, texts: Any) -> Any:
            raise RequestError("no more")

    tokenizer = Broken(BPE.Config(vocab_size=300))
    with pytest.raises(RequestError, match="no more"):
        list(encoding.encoded(tokenizer, [encoding.Document(0, False, ["a"])]))
