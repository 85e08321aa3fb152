"""The mask's predicate, its dense form and its short cuts."""

import pytest
import torch
from torch import Tensor

from txlab.nn.cache import Cache
from txlab.nn.mask import Mask

CPU = torch.device("cpu")


def dense(mask: Mask) -> Tensor:
    return mask.dense(CPU)[:, 0].int()


def test_causal_sees_itself_and_what_came_before() -> None:
    assert dense(Mask(3, 3)).tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]


def test_a_window_of_three_sees_three_keys() -> None:
    row = dense(Mask(8, 8, window=3))[0, 5]
    assert row.nonzero().flatten().tolist() == [3, 4, 5]
    both = dense(Mask(8, 8, causal=False, window=3))[0, 4]
    assert both.nonzero().flatten().tolist() == [2, 3, 4, 5, 6]


def test_documents_and_padding_hide() -> None:
    documents = torch.tensor([[0, 0, 1, 1]])
    assert dense(Mask(4, 4, documents=documents))[0, 3].tolist() == [0, 0, 1, 1]
    valid = torch.tensor([[False, True, True]])
    assert dense(Mask(3, 3, valid=valid)).tolist() == [[[0, 0, 0], [0, 1, 0], [0, 1, 1]]]


def test_queries_behind_a_cache_count_from_their_own_index() -> None:
    assert dense(Mask(2, 5, q_index=3)).tolist() == [[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]]
    each = Mask(1, 5, q_index=torch.tensor([[1], [4]]), window=2)
    assert dense(each).tolist() == [[[1, 1, 0, 0, 0]], [[0, 0, 0, 1, 1]]]


def test_narrowing_takes_the_smaller_window_and_shares_what_was_lowered() -> None:
    mask = Mask(6, 6)
    assert mask.narrow(window=None) is mask
    assert mask.narrow(window=6) is mask
    narrow = mask.narrow(window=2)
    assert narrow.window == 2
    assert narrow.narrow(window=4).window == 2
    assert mask.narrow(window=2).dense(CPU) is narrow.dense(CPU)
    assert mask.dense(CPU) is not narrow.dense(CPU)
    assert dense(narrow).sum() == 11


@pytest.mark.parametrize(
    ("mask", "plain"),
    [
        (Mask(4, 4), "causal"),
        (Mask(4, 4, causal=False), "full"),
        (Mask(1, 4, q_index=3), "full"),
        (Mask(1, 4, q_index=2), None),
        (Mask(2, 4, q_index=2), None),
        (Mask(4, 4, window=2), None),
        (Mask(4, 4, documents=torch.zeros(1, 4, dtype=torch.long)), None),
        (Mask(4, 4, causal=False, valid=torch.ones(1, 4, dtype=torch.bool)), None),
        (Mask(1, 4, q_index=torch.tensor([[3]])), None),
    ],
)
def test_plain_masks_are_those_a_kernels_flag_describes(mask: Mask, plain: str | None) -> None:
    assert mask.plain == plain
    if plain == "full":
        assert mask.dense(CPU).all()
    if plain == "causal":
        assert torch.equal(dense(mask)[0], torch.ones(4, 4, dtype=torch.int).tril())


def test_the_dense_form_is_the_predicate() -> None:
    documents = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 1, 1]])
    valid = torch.tensor([[True] * 5, [True, True, False, True, True]])
    mask = Mask(5, 5, window=3, documents=documents, valid=valid)
    for b in range(2):
        for q in range(5):
            for k in range(5):
                near = k <= q and int(valid[b, k:q].sum()) < 3
                alike = bool(documents[b, q] == documents[b, k])
                expected = near and alike and bool(valid[b, k])
                assert bool(dense(mask)[b, q, k]) == expected


def test_padding_behind_a_cache_may_see_nothing_under_a_window() -> None:
    valid = torch.tensor([[False, True], [True, True]])
    mask, _ = Cache([], 8).place(2, 2, valid, CPU)
    assert not mask.may_blind
    narrow = mask.narrow(window=1)
    assert narrow.may_blind
    assert dense(narrow).sum(-1).tolist() == [[0, 1], [1, 1]]
    assert not Cache([], 8).place(2, 2, None, CPU)[0].narrow(window=1).may_blind
