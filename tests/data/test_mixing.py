from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data import IGNORE, Text
from txlab.data.mixing import PERIOD, Mixed, turns, whole_weights

Make = Callable[..., Text]
WEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(WEIGHTS)
def test_any_first_rows_have_the_proportions_to_the_row(weights: list[int]) -> None:
    total = sum(weights)
    whose = turns(weights)
    counts = np.stack([np.cumsum(whose == k) for k in range(len(weights))], axis=1)
    n = np.arange(1, total + 1)[:, None]
    away = counts * total - n * np.array(weights)  # times total
    bound = 0 if len(weights) == 1 else 1 - Fraction(1, 2 * len(weights) - 2)
    assert np.abs(away).max() <= bound * total
    assert counts[-1].tolist() == weights


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 12), st.integers(-5, 2**65),
)  # fmt: skip
def test_the_stream_is_exact(sources: list[tuple[int, int]], batch: int, seed: int) -> None:
    """Any prefix has the proportions; each source's rows come once in each of its own epochs."""
    sizes, weights = [list(column) for column in zip(*sources, strict=True)]
    order = Mixed(sizes, weights, batch, seed)
    begins = np.cumsum([0, *sizes])
    seen: list[list[int]] = [[] for _ in sizes]
    n = 0
    for step in range(12):
        for row, epoch in zip(*order.step(step), strict=True):
            source = int(np.searchsorted(begins, row, side="right")) - 1
            assert epoch == len(seen[source]) // sizes[source]
            seen[source].append(row - int(begins[source]))
            n += 1
        for mine, weight in zip(seen, weights, strict=True):
            assert abs(len(mine) - Fraction(n * weight, sum(weights))) < 1
    for mine, size in zip(seen, sizes, strict=True):
        for begin in range(0, len(mine), size):
            part = mine[begin : begin + size]
            assert len(set(part)) == len(part)


def test_sources_have_orders_of_their_own() -> None:
    rows = [
        Mixed([50, 50], [1, 1], 100, seed).step(epoch)[0] for seed in (0, 1) for epoch in (0, 1)
    ]
    orders = [tuple(row % 50 for row in of_step if (row >= 50) == second)
              for of_step in rows for second in (False, True)]  # fmt: skip
    assert len(set(orders)) == 8


def test_weights_become_whole_numbers() -> None:
    assert whole_weights([0.7, 0.2, 0.1]) == [7, 2, 1]
    assert whole_weights([3, 1]) == whole_weights([0.75, 0.25]) == [3, 1]
    assert whole_weights([1e-2, 1]) == [1, 100]
    assert whole_weights([]) == []
    assert sum(whole_weights([1, PERIOD - 1])) == PERIOD
    with pytest.raises(RequestError, match=r"data\.mix: weights 0\.333333, 0\.666667 are whole"):
        whole_weights([0.333333, 0.666667])


def folders(tmp_path: Path, *words: str) -> list[str]:
    for word in words:
        (tmp_path / word).mkdir()
        for i in range(30):
            (tmp_path / word / f"{i}.txt").write_text(f"{word} number {i} of many. " * 8)
    return [str(tmp_path / word) for word in words]


@pytest.mark.parametrize("packing", ["blocks", "best_fit", "none"])
def test_a_mixture_of_texts(make_text: Make, tmp_path: Path, packing: str) -> None:
    a, b = folders(tmp_path, "apples", "quinces")
    made = make_text(
        mix=[{"path": a, "weight": 3}, {"path": b, "weight": 1}],
        batch_size=8, packing=packing, val_fraction=0.2, context=16,
    )  # fmt: skip
    assert [*made.facts["sources"]] == ["apples", "quinces"]
    assert made.facts["train_rows"] == len(made.train)
    # Each row is of one source, six of eight of the first.
    for step in range(4):
        (batch,) = made.step_batches().at(step)
        (indices,) = made.step_batches().indices(step)
        assert sum(i < made._of_source["train"][0] for i in indices) == 6
        for tokens, labels, valid, i in zip(
            batch["tokens"], batch["labels"], batch["valid"], indices, strict=True
        ):
            row = made.train[i]
            n = int(row["valid"].sum())
            assert torch.equal(tokens[valid], row["tokens"][row["valid"]])
            assert int((labels != IGNORE).sum()) == int((row["labels"] != IGNORE).sum())
            assert int(valid.sum()) == n
    parts = made.val_parts()
    assert [*parts] == ["apples", "quinces"]
    assert sum(map(len, parts.values())) == len(made.val)
    for name, rows in parts.items():
        text = made.tokenizer.decode(
            [int(t) for i in range(len(rows)) for t in rows[i]["tokens"][rows[i]["valid"]]]
        )
        assert name in text
        assert not {"apples", "quinces"} - {name} & set(text.split())
    assert made.facts["passes"]["apples"] > 1 > made.facts["passes"]["quinces"]


def test_other_weights_read_the_cache(
    make_text: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = folders(tmp_path, "apples", "quinces")
    first = make_text(mix=[{"path": a}, {"path": b}])
    monkeypatch.setattr(
        type(first.tokenizer), "encode_batch", lambda *_: pytest.fail("tokenised again")
    )
    again = make_text(mix=[{"path": a, "weight": 9}, {"path": b}])
    assert again.facts["cache"] == first.facts["cache"]


@pytest.mark.parametrize(
    ("mix", "reason"),
    [
        (["a"], r"entry 1: 'a'; expected \{path: PATH"),
        ([{"path": "a", "wieght": 2}], "entry 1: unknown key 'wieght'; there are: path, weight"),
        ([{"path": "a", "weight": -1}], "entry 1: weight=-1; expected a number, 0 or more"),
        ([{"path": "a", "weight": True}], "entry 1: weight=True"),
        ([{"path": 3}], "entry 1: path=3; expected text"),
        ([{"path": "x/a"}, {"path": "y/a.txt"}], "entry 2: there are two sources 'a'; give name="),
        ([{"path": "a", "name": "b c"}], "entry 1: name='b c'; expected letters"),
    ],
)
def test_bad_entries_are_named(mix: list, reason: str) -> None:
    with pytest.raises(RequestError, match=rf"data\.mix, {reason}"):
        Text.Config(mix=mix)


def test_a_source_of_weight_0_is_held_out_whole(make_text: Make, tmp_path: Path) -> None:
    a, b = folders(tmp_path, "apples", "quinces")
    (tmp_path / "c.txt").write_text("plums")  # far below a row
    known = (tmp_path / "apples").rglob("*")
    same = next(file.read_text() for file in sorted(known) if file.is_file())
    (tmp_path / "quinces" / "known.txt").write_text(same)  # in what is trained on as well
    made = make_text(
        mix=[{"path": b, "weight": 0}, {"path": a}, {"path": str(tmp_path / "c.txt"), "weight": 0}],
        batch_size=4, val_fraction=0.2, context=16,
    )  # fmt: skip
    facts = made.facts["sources"]
    assert [facts[name]["train_documents"] for name in ("quinces", "c")] == [0, 0]
    assert facts["quinces"]["val_tokens"] > 0
    assert [*made.val_parts()] == ["quinces", "apples", "c"]
    assert all(len(rows) for rows in made.val_parts().values())

    def words(rows, indices) -> set[str]:
        ids = [int(t) for i in indices for t in rows[i]["tokens"][rows[i]["valid"]]]
        return set(made.tokenizer.decode(ids).split())

    seen = {i for step in range(40) for i in made.step_batches().indices(step)[0]}
    assert seen == set(range(len(made.train)))
    trained = words(made.train, seen)
    assert "apples" in trained
    assert not {"quinces", "plums"} & trained
    assert same not in made.tokenizer.decode(
        [int(t) for i in seen for t in made.train[i]["tokens"][made.train[i]["valid"]]]
    )
    assert 0 < made.row_tokens <= 16
    assert made.facts["passes"] == {"apples": 1.0}


def test_one_source_at_least_is_trained_on() -> None:
    with pytest.raises(RequestError, match=r"mix=.*expected a weight above 0 for one at least"):
        Text.Config(mix=[{"path": "a", "weight": 0}])


def test_a_mix_goes_alone() -> None:
    with pytest.raises(RequestError, match=r"path=.*expected null beside mix"):
        Text.Config(mix=[{"path": "a"}], path="b")
    with pytest.raises(RequestError, match=r"batch_tokens=.*expected null beside mix"):
        Text.Config(mix=[{"path": "a"}], batch_tokens=100)


def test_a_source_too_short_for_a_row_is_named(make_text: Make, tmp_path: Path) -> None:
    (a,) = folders(tmp_path, "apples")
    (tmp_path / "b.txt").write_text("short")
    with pytest.raises(RequestError, match=r"b\.txt: \d tokens to train on"):
        make_text(mix=[{"path": a}, {"path": str(tmp_path / "b.txt")}], val_fraction=0, context=64)
