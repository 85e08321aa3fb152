import pytest
import torch

from txlab.core.errors import RequestError
from txlab.data import IGNORE
from txlab.data.corrupt.prefix import PrefixLM, pieces_of


def test_pieces_of_a_row():
    row = {
        "tokens": torch.arange(8),
        "documents": torch.tensor([0, 0, 1, 1, 1, 2, 3, 3]),
        "valid": torch.tensor([1, 1, 1, 1, 1, 1, 0, 0], dtype=torch.bool),
    }
    assert pieces_of(row) == [(0, 2), (2, 5), (5, 6)]
    assert pieces_of({"tokens": torch.arange(4)}) == [(0, 4)]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (1.0, 1.0)])
def test_only_what_follows_the_prefix_is_learned(made, low, high):
    built = made("prefix_lm", prefix_min=low, prefix_max=high)
    shares = []
    for number in range(len(built.train)):
        row = {k: v[0] for k, v in built.train.drawn([number], [0]).items()}
        plain = {k: v[0] for k, v in built.train.text.batch([number]).items()}
        for name in ("tokens", "positions", "documents", "valid"):
            assert torch.equal(row[name], plain[name])
        for a, b in pieces_of(plain):
            before = (plain["labels"][a:b] != IGNORE).tolist()
            after = (row["labels"][a:b] != IGNORE).tolist()
            n, left = sum(before), sum(after)
            assert after == [*([False] * (n - left)), *([True] * left), *before[n:]]
            assert n == 0 or left >= 1
            if n > 20:
                shares.append(1 - left / n)
    mean = sum(shares) / len(shares)
    assert mean == pytest.approx((low + high) / 2, abs=0.08)


def test_refusals():
    with pytest.raises(RequestError, match="prefix_min="):
        PrefixLM.Config(prefix_min=-0.1)
    with pytest.raises(RequestError, match=r"prefix_max=0\.2 of option 'prefix_lm'"):
        PrefixLM.Config(prefix_min=0.5, prefix_max=0.2)
