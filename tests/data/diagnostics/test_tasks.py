"""Each task's rows, against what it says; sizes, splits, what is asked."""

from pathlib import Path
from typing import Any

import pytest

from txlab.core.errors import RequestError
from txlab.data import IGNORE
from txlab.data.diagnostics.diagnostic import symbols
from txlab.data.source import data
from txlab.data.tokenizer import BPE

TASKS = ("copy", "selective_copy", "induction", "mqar", "needle", "parity", "modular_addition")


def made(task: str, folder: Path, *, context: int = 256, **fields: Any) -> Any:
    config = data.options[task].config(cache_dir=str(folder), batch_size=2, **fields)
    built = data.build(config, BPE.Config(vocab_size=2000), context=context)
    built.prepare()
    return built


def answer(task: str, words: list[str], config: Any) -> list[tuple[int, str]]:
    """(place, word) of all that can be known of a row, worked out from what comes before."""
    if task in ("copy", "selective_copy"):
        go = words.index(":")
        content = [w for w in words[:go] if w != "."]
        return list(enumerate(content, go + 1))
    if task == "induction":
        first = words.index("?")
        return [(len(words) - 1, words[first + 1])]
    if task == "mqar":
        go = words.index(":")
        pairs = dict(zip(words[0:go:2], words[1:go:2], strict=True))
        return [(i + 1, pairs[words[i]]) for i in range(go + 1, len(words), 2)]
    if task == "needle":
        asked = words[-2]
        place = next(i for i, w in enumerate(words) if w == "key" and words[i + 1] == asked)
        return [(len(words) - 1, words[place + 2])]
    if task == "parity":
        return [(len(words) - 1, str(words[:-2].count("1") % 2))]
    return [(4, str((int(words[0]) + int(words[2])) % config.p))]


@pytest.mark.parametrize("task", TASKS)
def test_what_is_supervised_is_what_can_be_known(task, tmp_path):
    built = made(task, tmp_path)
    seen = set()
    for part in ("train", "val"):
        for number in range(40):
            row = built.words(part, number)
            words = [word for word, _ in row]
            assert {*words} <= {*built.vocabulary()}
            assert len(words) <= built.longest()
            expected = answer(task, words, built.config)
            assert [(i, w) for i, (w, known) in enumerate(row) if known] == expected
            seen.add(tuple(words))
    assert len(seen) > 60
    assert built.words("train", 3) == built.words("train", 3)
    other = made(task, tmp_path, items_seed=1)
    assert other.words("train", 3) != built.words("train", 3)


@pytest.mark.parametrize("task", TASKS)
def test_rows_and_what_is_asked_agree(task, tmp_path):
    built = made(task, tmp_path, n_asked=20)
    assert built.facts["tokens_a_word"] == 1
    batch = built.val.batch(range(20))
    tokenizer = built.tokenizer
    problems = built.asked()
    assert len(problems) == 20
    for number, problem in enumerate(problems):
        row = [word for word, _ in built.words("val", number)]
        ids = batch["tokens"][number][batch["valid"][number]].tolist()
        n = len(problem.prompt_ids)
        assert ids[:n] == problem.prompt_ids
        assert len(ids) == n + problem.length
        assert tokenizer.decode(ids[n:-1]).strip() == problem.answer
        assert ids[-1] == tokenizer.eos_id
        assert tokenizer.decode(ids).split() == row
        labels = batch["labels"][number]
        assert labels[n - 1 : len(ids) - 1].tolist() == ids[n:]
        assert bool((labels[len(ids) - 1 :] == IGNORE).all())


def test_no_held_out_row_is_trained_on(tmp_path):
    """Where there are few enough rows to meet each of them: sums modulo 11."""
    built = made("modular_addition", tmp_path, p=11)
    parts = [{tuple(built.words(p, n)) for n in range(2000)} for p in ("train", "val")]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 121
    assert len(parts[1]) > 5


def test_symbols_are_different_words():
    found = symbols(6000)
    assert len({*found}) == 6000
    assert all(word.isalpha() for word in found)


def test_sizes_are_kept(tmp_path):
    assert len([w for w, _ in made("copy", tmp_path, length=5).words("train", 0)]) == 11
    row = made("needle", tmp_path, length=20, n_needles=3).words("train", 0)
    assert [w for w, _ in row].count("key") == 3
    lengths = {
        len(made("parity", tmp_path, length=6, shortest=5).words("train", n)) for n in range(40)
    }
    assert lengths == {7, 8}


@pytest.mark.parametrize(
    ("task", "fields", "said"),
    [
        ("mqar", {"n_pairs": 8, "n_symbols": 14}, "n_symbols=14 of option 'mqar': .* n_pairs=8"),
        ("selective_copy", {"length": 4}, "length=4 .* n_copied=8"),
        ("parity", {"shortest": 20}, "shortest=20 .* length=16"),
        ("modular_addition", {"p": 1000}, "p=1000"),
        ("induction", {"length": 0}, "length=0"),
        ("copy", {"n_symbols": 1}, "n_symbols=1"),
        ("needle", {"n_needles": 20}, "n_needles=20"),
    ],
)
def test_refused_sizes(task, fields, said):
    with pytest.raises(RequestError, match=said):
        data.options[task].config(**fields)


def test_a_row_must_fit_and_the_task_must_have_two_parts(tmp_path):
    with pytest.raises(RequestError, match=r"up to 35 tokens, model\.context=16"):
        made("copy", tmp_path, context=16)
    with pytest.raises(RequestError, match="so small that no row is left"):
        made("copy", tmp_path, length=1, n_symbols=2)
