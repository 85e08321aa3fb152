"""T5's span corruption: the paper's example, counts, what a row holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txlab.core.errors import RequestError
from txlab.data import IGNORE
from txlab.data.chance import uniforms
from txlab.data.corrupt.spans import (
    SENTINELS,
    SpanCorruption,
    corrupt_spans,
    cut,
    fitting,
    noise_spans,
    span_counts,
)


def test_the_example_of_the_paper():
    """Thank you <X> me to your party <Y> week; <X> for inviting <Y> last <Z>."""
    words = ["thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    ids = np.arange(len(words))
    hidden = np.array([w in ("for", "inviting", "last") for w in words])
    inputs, target = corrupt_spans(ids, hidden, np.array([100, 101]), eos_id=99)
    assert inputs.tolist() == [0, 1, 100, 4, 5, 6, 7, 101, 9]
    assert target.tolist() == [100, 2, 3, 101, 8, 99]


def test_counts_of_the_paper():
    """512 tokens at 15 % in runs of 3: 77 tokens in 26 runs."""
    assert span_counts(512, 0.15, 3.0) == (77, 26)
    assert span_counts(2, 0.9, 3.0) == (1, 1)


@given(st.integers(2, 300), st.floats(0.01, 0.99), st.floats(1, 10), st.integers(0, 99))
@settings(deadline=None, derandomize=True)
def test_hidden_runs(n: int, density: float, mean_span: float, row: int):
    tokens, runs = span_counts(n, density, mean_span)
    hidden = noise_spans(n, density, mean_span, uniforms(2 * n + 1, seed=0, epoch=0, row=row))
    assert len(hidden) == n
    assert hidden.sum() == tokens
    assert int((np.diff(np.concatenate([[0], hidden.astype(int)])) == 1).sum()) == runs
    sentinels = np.arange(runs) + 1000
    inputs, target = corrupt_spans(np.arange(n), hidden, sentinels, eos_id=999)
    assert len(inputs) + len(target) == n + 2 * runs + 1
    spelled = {}
    for i in target[:-1]:
        if i >= 1000:
            spelled[int(i)] = []
        else:
            spelled[max(spelled)].append(int(i))
    restored = [x for i in inputs for x in (spelled[int(i)] if i >= 1000 else [int(i)])]
    assert restored == list(range(n))


def test_each_way_of_cutting_is_equally_likely():
    found = [tuple(cut(5, 3, uniforms(4, seed=0, epoch=0, row=r))) for r in range(6000)]
    ways, counts = np.unique(found, axis=0, return_counts=True)
    assert len(ways) == 6
    assert counts.min() / counts.max() > 0.85


@given(st.integers(5, 600), st.floats(0.02, 0.9), st.floats(1, 10))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_the_longest_text_that_fits(context: int, density: float, mean_span: float):
    n = fitting(context, density, mean_span)
    assert 2 <= n < context
    for length in (n, n + 1):
        runs = span_counts(length, density, mean_span)[1]
        fits = length + 2 * runs + 1 <= context and runs <= SENTINELS
        assert fits == (length == n)


def test_rows_supervise_the_second_part_only(made):
    built = made("span_corruption")
    sentinels = [built.tokenizer.control[s] for s in built.control]
    text = built.train.text
    for number in range(len(built.train)):
        row = built.train.drawn([number], [1])
        ids = row["tokens"][0][row["valid"][0]].tolist()
        there = (row["labels"][0] != IGNORE).nonzero()[:, 0]
        first = int(there[0]) + 1
        assert there.tolist() == list(range(first - 1, len(ids) - 1))
        assert row["labels"][0][there].tolist() == ids[first:]
        assert ids[first] == sentinels[0]
        assert ids[-1] == built.tokenizer.eos_id
        inside = [i for i in ids if i in sentinels]
        runs = len(inside) // 2
        assert inside == sentinels[:runs] * 2
        plain = text.batch([number])
        n = int(plain["valid"].sum()) if "valid" in plain else plain["tokens"].numel()
        assert len(ids) == n + 2 * runs + 1 <= built.context


def test_refusals():
    for fields in ({"noise_density": 1.0}, {"mean_span": 0.5}, {"documents": "isolated"}):
        with pytest.raises(RequestError, match=next(iter(fields))):
            SpanCorruption.Config(**fields)
