"""Linear attention: the quadratic definition in float64, chunks, borders, padding, refusals."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from txlab.core.errors import RequestError
from txlab.nn.attention import LinearAttention
from txlab.nn.attention.chunks import CHUNK, causal_sums
from txlab.nn.attention.linear import Feature, Normalizer, RecurrentCache
from txlab.nn.mask import Mask
from txlab.nn.pattern import Pattern
from txlab.nn.position import RoPE
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe

KINDS = [
    (Feature.elu, Normalizer.sum),
    (Feature.elu, Normalizer.rms),
    (Feature.relu, Normalizer.sum),
    (Feature.identity, Normalizer.rms),
]
MAPS = {
    Feature.elu: lambda x: F.elu(x) + 1,
    Feature.relu: lambda x: x * (x > 0),
    Feature.identity: lambda x: x,
}


def probe(rope: bool = False, **fields: object) -> MixerProbe:
    mixer = LinearAttention(LinearAttention.Config(**fields), tiny.DIMS)
    tiny.shake(mixer)
    position = RoPE(RoPE.Config(), tiny.DIMS) if rope else None
    return MixerProbe(mixer, tiny.DIMS, position=position)


def definition(built: MixerProbe, x: Tensor, mask: Mask, positions: Tensor) -> Tensor:
    """Attention as its equation says, with a T x T matrix of weights, in float64."""
    part = built.part
    q, k, v = (m(x).unflatten(-1, (4, 8)).transpose(1, 2) for m in (part.q, part.k, part.v))
    q, k = MAPS[part.feature](q), MAPS[part.feature](k)
    turned = built.position.rotate(q, k, built.position.prepare(positions))
    seen = mask.dense(x.device)
    weights = [(a @ b.transpose(-1, -2)) * seen for a, b in (turned, (q, k))]
    y = weights[0] @ v
    if part.norm is None:
        total = weights[1].sum(-1, keepdim=True)
        y = y / total.where(total > 0, 1.0)
    else:
        y = y / (y.square().mean(-1, keepdim=True) + part.norm.eps).sqrt() * part.norm.weight
    return part.o(y.transpose(1, 2).flatten(2))


def masks(t: int) -> dict[str, Mask]:
    valid = torch.ones(2, t, dtype=torch.bool)
    valid[0, : t // 3] = False
    valid[1, -t // 4 :] = False
    borders = torch.tensor([[3, CHUNK, CHUNK + 1, t - 2], [1, 2, 2 * CHUNK, t - 1]])
    documents = (torch.arange(t) >= borders[..., None]).sum(1)
    return {
        "causal": Mask(t, t),
        "full": Mask(t, t, causal=False),
        "padding": Mask(t, t, valid=valid),
        "documents": Mask(t, t, documents=documents),
        "documents both ways": Mask(t, t, causal=False, documents=documents, valid=valid),
    }


@pytest.mark.parametrize("rope", [False, True], ids=["bare", "rope"])
@pytest.mark.parametrize("kind", KINDS, ids=["-".join(k) for k in KINDS])
@pytest.mark.parametrize("name", masks(9))
def test_chunks_equal_the_quadratic_definition_in_float64(
    name: str, kind: tuple[Feature, Normalizer], rope: bool
) -> None:
    t = 2 * CHUNK + 7
    built = probe(rope, feature=kind[0], normalizer=kind[1]).double()
    x = tiny.floats(2, t, 32, dtype=torch.float64)
    mask = masks(t)[name]
    positions = torch.arange(t)[None]
    found = []
    for output in (
        built(x, mask=mask, positions=positions),
        definition(built, x, mask, positions),
    ):
        seen = mask.dense(x.device).any(-1)[:, 0, :, None]
        built.zero_grad()
        (output * seen * tiny.floats(*x.shape, seed=3)).sum().backward()
        found.append([output * seen, *(p.grad.clone() for p in built.parameters())])
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact, atol=1e-9, rtol=1e-9)


def test_the_recurrence_gives_the_worked_numbers() -> None:
    q = torch.tensor([[1.0, 0], [1, 1], [0, 2]])[None, None]
    k = torch.tensor([[2.0, 1], [0, 3], [1, 1]])[None, None]
    v = torch.tensor([[1.0], [10], [100]])[None, None]
    # Weights: 2; 3, 3; 2, 6, 2.
    y, state = causal_sums(q, k, v)
    assert y.flatten().tolist() == [2, 33, 262]
    assert state.flatten().tolist() == [102, 131]
    assert causal_sums(q, k, v, strict=True)[0].flatten().tolist() == [0, 3, 62]
    documents = torch.tensor([[0, 1, 1]])
    assert causal_sums(q, k, v, documents=documents)[0].flatten().tolist() == [2, 30, 260]
    assert causal_sums(q, k, v, state=state)[0].flatten().tolist() == [104, 266, 524]


@pytest.mark.parametrize("edges", [(0, 70, 71, 150), (0, 1, 2, 64, 150), (0, 150)])
def test_a_state_carried_over_any_chunks_is_that_of_the_whole(edges: tuple[int, ...]) -> None:
    q, k, v = (tiny.floats(1, 2, 150, 4, seed=i, dtype=torch.float64) for i in range(3))
    whole, last = causal_sums(q, k, v)
    state, parts = None, []
    for start, stop in pairwise(edges):
        piece = (x[:, :, start:stop] for x in (q, k, v))
        y, state = causal_sums(*piece, state=state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 2), whole)
    torch.testing.assert_close(state, last)


def test_the_state_is_float32_and_as_large_after_any_number_of_tokens() -> None:
    model = tiny.model(attn=LinearAttention.Config()).bfloat16()
    for length in (4, 32):
        cache = model.new_cache(2, length)
        layer = cache.layers[0]
        assert isinstance(layer, RecurrentCache)
        assert layer.values.dtype == torch.float32
        assert layer.values.shape == (2, 4, 8, 8)
        assert cache.bytes_per_token() == 0


def test_a_state_cannot_be_cropped_and_says_so() -> None:
    model = tiny.model(attn=LinearAttention.Config())
    cache = model.new_cache(1, 8)
    model(tiny.tokens(1, 5), cache=cache)
    cache.crop(5)
    with pytest.raises(RequestError, match=r"model\.attn=linear .*: make a new cache"):
        cache.crop(3)


@torch.no_grad()
def test_compiled_decoding_with_fixed_shapes_keeps_its_state() -> None:
    model = tiny.model(attn=LinearAttention.Config())
    tokens = tiny.tokens(2, 9)
    expected = model(tokens).states
    cache = model.new_cache(2, 9)
    model(tokens[:, :4], cache=cache)
    cache.fix_shapes(2, tokens.device)
    for i in range(4, 9):
        found = model(tokens[:, i : i + 1], cache=cache).states[:, 0]
        torch.testing.assert_close(found, expected[:, i], atol=1e-5, rtol=1e-5)


def test_impossible_partners_are_refused_with_both_names() -> None:
    from txlab.nn.backend import Math

    linear = LinearAttention.Config()
    with pytest.raises(
        RequestError, match=r"model\.attn=linear: model\.backend=math .* use model\.backend=auto"
    ):
        tiny.model(attn=linear, backend=Math.Config())
    with pytest.raises(RequestError, match=r"normalizer=.*expected rms"):
        LinearAttention.Config(feature=Feature.identity)
    built = probe()
    with pytest.raises(RequestError, match=r"has no window: choose model\.attn=gqa"):
        built(built.inputs(), mask=Mask(7, 7, window=2))


def test_layers_of_linear_and_softmax_attention_alternate() -> None:
    pattern = Pattern(attn=["linear", "gqa"])
    model = tiny.model(replace(tiny.DIMS, n_layers=2), pattern=pattern)
    assert model.layers.backends()[0] == "none"
    tokens = tiny.tokens(2, 7)
    cache = model.new_cache(2, 7)
    found = [model(part, cache=cache).states for part in tokens.split((3, 1, 3), 1)]
    torch.testing.assert_close(torch.cat(found, 1), model(tokens).states, atol=1e-5, rtol=1e-5)
