"""The head-count options: who reads which key head, sizes, switches, refusals."""

import pytest
import torch
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.attention import GQA, MHA, MQA, SoftmaxAttention, attention
from txlab.nn.backend import SDPA, Math
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import NoPosition
from txlab.testing.tiny import DIMS, floats, shake

HEADS = Dims(dim=8, n_heads=4, head_dim=2, n_layers=1, context=16, vocab_size=5)


def context(backend: type, length: int, dims: Dims = HEADS) -> Context:
    positions = torch.arange(length)[None]
    return Context(
        Mask(length, length),
        positions,
        NoPosition(NoPosition.Config(), dims),
        positions,
        backend(backend.Config(), dims),
    )


@pytest.mark.parametrize("backend", [Math, SDPA])
def test_neighbouring_query_heads_share_a_key_head(backend: type) -> None:
    gqa = GQA(GQA.Config(n_kv_heads=2, qkv_bias=True), HEADS)
    with torch.no_grad():
        gqa.v.weight.zero_()
        gqa.v.bias.copy_(torch.tensor([0.0, 0, 1, 1]))
        gqa.o.weight.copy_(torch.eye(8))
    y = gqa(floats(2, 3, 8), context(backend, 3))
    torch.testing.assert_close(y[1, 2].view(4, 2)[:, 0], torch.tensor([0.0, 0, 1, 1]))


def copied(source: SoftmaxAttention, target: SoftmaxAttention) -> SoftmaxAttention:
    target.load_state_dict(source.state_dict())
    return target


@pytest.mark.parametrize(("n_kv_heads", "twin"), [(4, MHA), (1, MQA)])
def test_as_many_heads_are_mha_and_one_is_mqa(n_kv_heads: int, twin: type) -> None:
    gqa = GQA(GQA.Config(n_kv_heads=n_kv_heads), HEADS)
    shake(gqa)
    x, ctx = floats(2, 5, 8), context(SDPA, 5)
    assert torch.equal(gqa(x, ctx), copied(gqa, twin(twin.Config(), HEADS))(x, ctx))


@pytest.mark.parametrize(
    ("n_heads", "expected"), [(1, 1), (2, 1), (4, 1), (6, 1), (8, 2), (12, 3), (32, 8), (7, 1)]
)
def test_by_default_a_quarter_of_the_heads_or_the_next_divisor(n_heads: int, expected: int) -> None:
    dims = Dims(dim=8, n_heads=n_heads, head_dim=2, n_layers=1, context=8, vocab_size=5)
    assert GQA(GQA.Config(), dims).n_kv_heads == expected


@pytest.mark.parametrize("n_kv_heads", [4, 12])
def test_heads_that_do_not_divide_are_refused_with_both_numbers(n_kv_heads: int) -> None:
    dims = Dims(dim=12, n_heads=6, head_dim=2, n_layers=1, context=8, vocab_size=5)
    with pytest.raises(RequestError, match=rf"n_heads=6 .* n_kv_heads={n_kv_heads}; .* divisor"):
        GQA(GQA.Config(n_kv_heads=n_kv_heads), dims)


@pytest.mark.parametrize("field", ["window", "softcap", "n_kv_heads", "dropout"])
def test_values_that_mean_nothing_are_refused(field: str) -> None:
    with pytest.raises(RequestError, match=f"{field}=-1"):
        GQA.Config(**{field: -1})


@pytest.mark.parametrize("name", ["mha", "mqa", "gqa"])
def test_switches_change_parameters_and_results(name: str) -> None:
    kind = attention.option(name)
    plain = kind.cls(kind.config(), DIMS)
    shake(plain)
    x, ctx = floats(1, 6, 32), context(Math, 6, DIMS)

    def changed(**fields: object) -> tuple[set[str], Tensor]:
        made = kind.cls(kind.config(**fields), DIMS)
        shake(made)
        made.load_state_dict(plain.state_dict(), strict=False)
        return set(made.state_dict()) - set(plain.state_dict()), made(x, ctx)

    assert changed()[0] == set()
    assert torch.equal(changed()[1], plain(x, ctx))
    for fields, names in (
        ({"window": 2}, set()),
        ({"softcap": 0.5}, set()),
        ({"qk_norm": True}, {"q_norm.weight", "k_norm.weight"}),
        ({"qkv_bias": True}, {"q.bias", "k.bias", "v.bias"}),
        ({"out_bias": True}, {"o.bias"}),
        ({"dropout": 0.5}, set()),
    ):
        found, y = changed(**fields)
        assert found == names, fields
        assert not torch.allclose(y, plain(x, ctx)), fields


def test_attention_dropout_is_the_models_unless_set_and_off_in_evaluation() -> None:
    dims = Dims(8, 4, 2, 1, 16, 5, dropout=0.5)
    x, ctx = floats(1, 6, 8), context(SDPA, 6)
    inherited = MHA(MHA.Config(), dims)
    assert inherited.dropout == 0.5
    assert MHA(MHA.Config(dropout=0.0), dims).dropout == 0.0
    assert not torch.equal(inherited(x, ctx), inherited(x, ctx))
    inherited.eval()
    assert torch.equal(inherited(x, ctx), inherited(x, ctx))
