"""ALiBi and T5's relative bias: worked numbers, and transformers' own functions."""

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.position import T5, ALiBi
from txlab.nn.position.t5 import bucket


def dims(n_heads: int) -> Dims:
    return Dims(dim=8, n_heads=n_heads, head_dim=4, n_layers=1, context=6, vocab_size=10)


def grid(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(n).view(1, 1, -1, 1), torch.arange(n).view(1, 1, 1, -1)


def heads(n: int) -> torch.Tensor:
    return torch.arange(n).view(1, -1, 1, 1)


def test_slopes_of_eight_heads_are_the_papers():
    slopes = ALiBi(ALiBi.Config(), dims(8)).slope(torch.arange(8))
    assert slopes.tolist() == [2.0**-i for i in range(1, 9)]


def test_slopes_of_twelve_heads_go_on_with_every_other_one_of_sixteen():
    slopes = ALiBi(ALiBi.Config(), dims(12)).slope(torch.arange(12))
    expected = [2.0**-i for i in range(1, 9)] + [2.0**-e for e in (0.5, 1.5, 2.5, 3.5)]
    assert slopes.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 12, 16, 25, 40])
def test_alibi_equals_blooms_up_to_a_constant_of_the_row(n):
    """BLOOM adds slope times key index: in a softmax the same as minus slope times distance."""
    q, k = grid(7)
    ours = ALiBi(ALiBi.Config(), dims(n)).score(heads(n), q, k)[0]
    theirs = build_alibi_tensor(torch.ones(1, 7), n, torch.float32)
    seen = torch.ones(7, 7, dtype=torch.bool).tril()
    for own, other in zip(ours, theirs, strict=True):
        rows = torch.where(seen, other.expand(7, 7), -math.inf).softmax(-1)
        torch.testing.assert_close(torch.where(seen, own, -math.inf).softmax(-1), rows)


def test_alibi_falls_alike_in_both_directions_and_without_end():
    scheme = ALiBi(ALiBi.Config(), dims(4))
    q, k = grid(9)
    score = scheme.score(heads(4), q, k)
    assert torch.equal(score, score.mT)
    far = scheme.score(torch.tensor(0), torch.tensor(100_000), torch.tensor(0))
    assert far.item() == -100_000 * 0.25


def test_alibi_is_float32_in_a_cast_model():
    scheme = ALiBi(ALiBi.Config(), dims(4)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        score = scheme.score(torch.tensor(3), torch.tensor(4097), torch.tensor(0))
    assert score.dtype == torch.float32
    assert score.item() == -4097 / 256


FIELDS = [(32, 128), (32, 20), (8, 100), (10, 7), (64, 1000)]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("n", "most"), FIELDS)
def test_buckets_equal_transformers(n, most, both):
    config = T5.Config(n_buckets=n, max_distance=most, bidirectional=both)
    back = torch.arange(-2 * most, 2 * most)
    theirs = T5Attention._relative_position_bucket(-back, both, n, most)
    assert torch.equal(bucket(back, config), theirs)


def test_worked_buckets():
    """32 buckets up to 128: 0 to 15 alone, then log steps; everything from 128 on is bucket 31."""
    config = T5.Config()
    found = bucket(torch.tensor([-5, 0, 1, 15, 16, 20, 64, 127, 128, 5000]), config)
    assert found.tolist() == [0, 0, 1, 15, 16, 17, 26, 31, 31, 31]
    both = T5.Config(bidirectional=True)
    assert bucket(torch.tensor([-1, 0, 1, -5000, 5000]), both).tolist() == [17, 0, 1, 31, 15]


@pytest.mark.parametrize("both", [False, True])
def test_score_reads_the_table(both):
    scheme = T5(T5.Config(n_buckets=8, max_distance=6, bidirectional=both), dims(3))
    q, k = grid(20)
    score = scheme.score(heads(3), q, k)
    assert score.shape == (1, 3, 20, 20)
    for i, j in ((0, 0), (5, 2), (2, 5), (19, 0), (0, 19)):
        row = scheme.table.weight[bucket(torch.tensor(i - j), scheme.config)]
        assert torch.equal(score[0, :, i, j], row)
    # Past max_distance nothing changes any more: the documented behaviour.
    assert torch.equal(score[..., 19, 0], score[..., 10, 4])
    assert not torch.equal(score[..., 19, 0], score[..., 5, 4])


def test_the_table_of_buckets_comes_back_from_meta():
    with torch.device("meta"):
        scheme = T5(T5.Config(), dims(2))
    assert scheme.buckets.is_meta
    scheme.to_empty(device="cpu").reset_parameters()
    assert torch.equal(scheme.buckets, T5(T5.Config(), dims(2)).buckets)
    assert list(scheme.state_dict()) == ["table.weight"]


@pytest.mark.parametrize(
    "fields",
    [
        {"n_buckets": 1},
        {"n_buckets": 7, "bidirectional": True},
        {"n_buckets": 2, "bidirectional": True},
        {"max_distance": 16},
    ],
)
def test_bad_fields_are_refused(fields):
    with pytest.raises(RequestError, match=next(iter(fields))):
        T5.Config(**fields)
