"""Rows as text, and the figures of rows."""

import numpy as np
import pytest
import torch

from txlab.data.batch import IGNORE, Batch
from txlab.data.preview import Span, marked, shortened, spans
from txlab.data.rows import Rows
from txlab.data.statistics import LOOKED_AT, statistics
from txlab.data.tokenizer import BPE


@pytest.fixture(scope="module")
def bytewise() -> BPE:
    made = BPE(BPE.Config(vocab_size=261))
    made.train(["ab"])
    return made


def batch(tokenizer: BPE, text: str, **more: list[int]) -> Batch:
    """One row: `text`, where `|` is the bos token and `_` padding; `more` as tensors."""
    names = {"|": tokenizer.bos_id, "_": tokenizer.pad_id}
    ids = [names.get(c) if c in names else tokenizer.encode(c)[0] for c in text]
    found: dict[str, torch.Tensor] = {"tokens": torch.tensor([ids])}
    found |= {name: torch.tensor([values]) for name, values in more.items()}
    return found  # type: ignore[return-value]


def test_spans_of_a_packed_row(bytewise: BPE) -> None:
    row = batch(bytewise, "|ab|cd__", documents=[0, 0, 0, 1, 1, 1, 2, 2])
    row["labels"] = torch.full((1, 8), IGNORE)
    row["labels"][0, 1] = row["tokens"][0, 2]
    row["labels"][0, 3:5] = row["tokens"][0, 4:6]
    row["valid"] = torch.tensor([[True] * 6 + [False] * 2])
    assert spans(bytewise, row, 0) == [
        Span("<|bos|>", control=True),
        Span("a"),
        Span("b", supervised=True),
        Span("<|bos|>", control=True, document=1),
        Span("cd", supervised=True, document=1),
        Span("", padding=2),
    ]
    assert marked(spans(bytewise, row, 0)) == (
        "<|bos|>a\u00abb\u00bb<|bos|>\u00abcd\u00bb<2 x padding>"
    )


def test_only_tokens_are_needed(bytewise: BPE) -> None:
    row = batch(bytewise, "ab_")
    assert spans(bytewise, row, 0) == [Span("ab"), Span("<|pad|>", control=True)]


def test_labels_of_hidden_tokens_follow_them(bytewise: BPE) -> None:
    row = batch(bytewise, "a|bc")
    ids = row["tokens"][0].tolist()
    row["labels"] = torch.tensor([[IGNORE, ids[0], ids[2], IGNORE]])
    assert spans(bytewise, row, 0, shifted=False) == [
        Span("a"),
        Span("<|bos|>\u2192a", supervised=True, control=True),
        Span("b", supervised=True),
        Span("c"),
    ]


@pytest.mark.parametrize(
    ("width", "texts"),
    [(9, ["abc", "de"]), (5, ["abc", "de"]), (4, ["abc", "d", "…"]), (3, ["abc", "…"])],
)
def test_what_is_cut_off_shows(width: int, texts: list[str]) -> None:
    found = [Span("abc", supervised=True), Span("de", document=1)]
    assert [span.text for span in shortened(found, width)] == texts


class Some(Rows):
    """Row i has the documents of `rows[i]` and one place of padding."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices) -> Batch:
        (index,) = indices
        lengths = self.rows[index]
        n = sum(lengths) + 1
        labels = torch.full((1, n), IGNORE)
        labels[0, 0] = 3
        documents = [d for d, size in enumerate([*lengths, 1]) for _ in range(size)]
        return {
            "tokens": torch.ones(1, n, dtype=torch.long),
            "labels": labels,
            "documents": torch.tensor([documents]),
            "valid": torch.arange(n)[None] < n - 1,
        }


def test_figures_of_rows() -> None:
    found = statistics(Some([[3, 4], [10], [1, 1, 1]]))
    assert found is not None
    assert (found.rows, found.seen, found.tokens, found.supervised) == (3, 3, 20, 3)
    assert sorted(found.lengths.tolist()) == [1, 1, 1, 3, 4, 10]
    assert found.documents == 2
    assert found.quantiles == (1, 1, 4, 10)
    assert found.histogram(5) == [(1, 2, 3), (3, 4, 2), (5, 6, 0), (7, 8, 0), (9, 10, 1)]
    assert found.histogram(100) == [(n, n, found.lengths.tolist().count(n)) for n in range(1, 11)]


def test_of_many_rows_some_are_looked_at() -> None:
    found = statistics(Some([[n % 7 + 1] for n in range(3 * LOOKED_AT)]))
    assert found is not None
    assert (found.rows, found.seen) == (3 * LOOKED_AT, LOOKED_AT)
    assert np.unique(found.lengths).tolist() == list(range(1, 8))


def test_histogram_holds_every_length_once() -> None:
    for n in (1, 2, 7, 8, 9, 50, 257):
        found = statistics(Some([[i + 1] for i in range(n)]))
        assert found is not None
        parts = found.histogram()
        assert sum(count for *_, count in parts) == n
        assert len(parts) <= 8
        assert [a for a, *_ in parts[1:]] == [b + 1 for _, b, _ in parts[:-1]]
        assert (parts[0][0], parts[-1][1]) == (1, n)


def test_other_rows_have_no_figures() -> None:
    class Pictures(Rows):
        def __len__(self) -> int:
            return 2

        def batch(self, indices):
            return {"pixels": torch.zeros(len(indices), 3, 4, 4)}

    assert statistics(Pictures()) is None
