"""`tokenize`: trained on any data, shown on a text, measured; bad words cost one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from txlab.commands.tokenize import main, watched
from txlab.core.errors import RequestError
from txlab.testing import tiny


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Overrides: a small corpus, its own cache."""
    folder = tiny.corpus(tmp_path / "corpus")
    return [f"data.path={folder}", f"data.cache_dir={tmp_path / 'cache'}", "data.val_fraction=0.2"]


@pytest.mark.parametrize("name", ["bpe", "wordpiece", "unigram", "byte"])
def test_train_writes_what_transformers_reads(
    name: str, words: list[str], tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "made"
    main(["train", *words, f"tokenizer={name}", "tokenizer.vocab_size=400", f"out={out}"])
    said = capsys.readouterr().out.splitlines()
    theirs = AutoTokenizer.from_pretrained(out)
    assert said[0] == f"{name} tokenizer of {len(theirs)} tokens, written to {out}"
    assert " bytes a token, 0 unknown (0.000%)" in said[-1]
    text = "Note 7. Softmax, the key."
    ids = " ".join(map(str, theirs.encode(text, add_special_tokens=False)))
    for tokenizer in (
        ["tokenizer=pretrained", f"tokenizer.path={out}"],
        [f"tokenizer={name}", f"tokenizer.path={out / 'tokenizer.json'}"],
    ):
        main(["encode", *words, *tokenizer, f"text={text}"])
        assert capsys.readouterr().out.splitlines()[1] == ids
    main(["stats", *words, "tokenizer=pretrained", f"tokenizer.path={out}"])
    assert said[-1].partition("texts: ")[2] in capsys.readouterr().out


def test_train_sees_no_held_out_text(words: list[str], tmp_path: Path) -> None:
    """Each of the documents has a number of its own."""
    numbers = []
    for part in ("0", "0.5"):
        out = tmp_path / part
        split = ["data.val_fraction=" + part, "tokenizer=wordpiece", "tokenizer.min_frequency=1"]
        main(["train", *words, *split, "tokenizer.vocab_size=4k", f"out={out}"])
        vocabulary = json.loads((out / "tokenizer.json").read_text())["model"]["vocab"]
        numbers.append(sum(f"{n}" in vocabulary for n in range(10, 40)))
    assert numbers[0] == 30
    assert 5 < numbers[1] < 25


@pytest.mark.parametrize("source", [["data=chat"], ["data=pairs"], ["data=chat", "chats"]])
def test_chats_are_data_too(source: list[str], tmp_path: Path, capsys: Any) -> None:
    words = [source[0], f"data.cache_dir={tmp_path / 'cache'}"]
    words += [f"data.path={tiny.chats(tmp_path)}"] if source[1:] else ["data.n_train=60"]
    out = tmp_path / "made"
    main(["train", *words, "tokenizer.vocab_size=300", f"out={out}"])
    main(["encode", *words, f"tokenizer.path={out / 'tokenizer.json'}", "text=user\n"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3] == "user│\\n"  # part of what the template writes in each chat


@pytest.mark.parametrize("name", ["text", "mlm", "prompts", "copy"])
def test_other_data_too(name: str, tmp_path: Path, capsys: Any) -> None:
    words = [f"data={name}", f"data.cache_dir={tmp_path / 'cache'}", "tokenizer.vocab_size=400"]
    words += [f"data.path={tiny.corpus(tmp_path / 'corpus')}"] if name in ("text", "mlm") else []
    out = tmp_path / "made"
    main(["train", *words, f"out={out}"])
    said = capsys.readouterr().out
    main(["stats", *words, f"tokenizer.path={out / 'tokenizer.json'}"])
    assert said.splitlines()[-1].partition("texts: ")[2] in capsys.readouterr().out
    masked = AutoTokenizer.from_pretrained(out).mask_token
    assert (masked == "<|mask|>") == (name == "mlm")


def test_a_template_of_its_own_is_what_is_learned(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}zzqq{{ m.content }}<|end|>{% endfor %}"
    )
    words = ["data=chat", f"data.template={tmp_path / 't.jinja'}", "data.n_train=60"]
    main(["train", *words, "tokenizer.vocab_size=300", f"out={tmp_path / 'made'}"])
    main(["encode", f"tokenizer.path={tmp_path / 'made' / 'tokenizer.json'}", "text=zzqq"])
    assert capsys.readouterr().out.splitlines()[-3] == "zzqq"


def test_data_brings_its_control_tokens(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "made"
    more = ["tokenizer.vocab_size=300", "tokenizer.control=['<|mask|>']"]
    main(["train", *words, *more, f"out={out}"])
    assert AutoTokenizer.from_pretrained(out).mask_token == "<|mask|>"


def test_encode_takes_a_file_and_marks_what_is_no_text(
    words: list[str], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "a.txt").write_bytes("é\n<|bos|>".encode())
    main(["encode", *words, "tokenizer=byte", f"file={tmp_path / 'a.txt'}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == r"\xc3│\xa9│\n│<│|│b│o│s│|│>"
    assert lines[2] == "10 tokens, 1.000 bytes a token, 0 unknown (0.000%)"


def test_encode_counts_unknown_text_and_uses_the_runs_tokenizer(
    words: list[str], capsys: Any
) -> None:
    main(["encode", *words, "tokenizer=wordpiece", "tokenizer.vocab_size=300", "text=the Я key"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == " the│<|unk|>│ key"
    assert lines[2] == "3 tokens, 3.333 bytes a token, 1 unknown (33.333%)"


def test_colours_on_a_terminal(words: list[str], monkeypatch, capsys: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["encode", *words, "tokenizer=byte", "text=ab"])
    assert "\x1b[30;102ma\x1b[0m\x1b[30;106mb\x1b[0m" in capsys.readouterr().out


def test_the_bar_tells_what_is_going_on() -> None:
    from rich.progress import Progress

    bar = Progress(disable=True)
    texts = watched(["ab", "é"], bar, "reading", 4, after="learning")
    for done in (2, 4):
        next(texts)
        assert [(t.description, t.completed, t.total) for t in bar.tasks] == [("reading", done, 4)]
    assert not [*texts]
    assert [(t.description, t.total) for t in bar.tasks] == [("learning", None)]
    texts = watched(["a"], bar, "measuring", 1)
    next(texts)
    assert [t.description for t in bar.tasks] == ["measuring"]


def test_stats_count_as_many_bytes_as_asked(words: list[str], capsys: Any) -> None:
    main(["stats", *words, "tokenizer=byte", "most_bytes=1000"])
    shown = capsys.readouterr().out
    found = int(shown.split()[0].replace(",", ""))
    assert 1000 <= found < 2000
    assert shown.splitlines()[0].endswith("(there is more)")
    assert f"{found:,} tokens, 1.000 bytes a token" in shown
    assert "    1 " in shown
    assert "261 tokens in the vocabulary" in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "expected train, encode, stats as its first word"),
        (["learn"], "tokenize learn: expected train, encode, stats"),
        (["train"], r"out=\.\.\. is needed"),
        (["train", "out=HERE"], "out=.* exists: name a folder"),
        (["train", "tokenizer=pretrained", "out=new"], "tokenizer=pretrained names a finished one"),
        (["train", "tokenizer.path=a.json", "out=new"], "tokenizer.path names a finished one"),
        (["train", "data.path=/none", "out=HERE/new"], "data.path=/none"),
        (["encode"], "takes text=... or file=..., one of them"),
        (["encode", "text=a", "file=b"], "one of them"),
        (["encode", "file=/none"], "file=/none: No such file"),
        (["encode", "text=a", "ckpt=/none"], "/none"),
        (["encode", "txt=a"], "Did you mean text"),
        (["stats", "most_bytes=0"], "most_bytes=0: expected a number above 0"),
    ],
)
def test_bad_words(given: list[str], said: str, tmp_path: Path) -> None:
    there = [word.replace("HERE", str(tmp_path)) for word in given]
    with pytest.raises(RequestError, match=said):
        main(there)
    assert not [*tmp_path.iterdir()]
