"""Differential attention against the paper's definition, written head by head in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.attention import MHA, DifferentialAttention
from txlab.nn.backend import SDPA
from txlab.nn.cache import KVCache
from txlab.nn.mask import Mask
from txlab.nn.position import ALiBi, RoPE
from txlab.nn.ring import RingCache
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe

T = 7


def probe(dims: Dims = tiny.DIMS, **fields: object) -> MixerProbe:
    mixer = DifferentialAttention(DifferentialAttention.Config(**fields), dims.at(2))
    tiny.shake(mixer)
    return MixerProbe(mixer, dims).eval()


def definition(part: DifferentialAttention, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Ye et al. 2024, equations 1 to 3, for one causal row x [t d]: RoPE and GQA left out."""
    q, k, v = (x @ linear.weight.T for linear in (part.q, part.k, part.v))
    width, heads, outputs = part.width, part.q.out_features // (2 * part.width), []
    share = heads // (part.k.out_features // (2 * width))
    parameters = dict(part.named_parameters())
    a1, b1, a2, b2 = (parameters[f"lambda_{name}"] for name in ("a1", "b1", "a2", "b2"))
    start = 0.8 - 0.6 * math.exp(-0.3 * 2)
    strength = torch.exp(a1 @ b1) - torch.exp(a2 @ b2) + start
    hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    for i in range(heads):
        g, maps = i // share, []
        for m in (0, 1):
            at, of = (2 * i + m) * width, (2 * g + m) * width
            scores = q[:, at : at + width] @ k[:, of : of + width].T / width**0.5
            scores = scores if bias is None else scores + bias[2 * i + m]
            maps.append(scores.masked_fill(hidden, -torch.inf).softmax(-1))
        y = (maps[0] - strength * maps[1]) @ v[:, 2 * g * width : 2 * (g + 1) * width]
        y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * part.head_norm.weight
        outputs.append((1 - start) * y)
    return torch.cat(outputs, -1) @ part.o.weight.T


@pytest.mark.parametrize("n_kv_heads", [None, 4, 2])
@pytest.mark.parametrize("backend", ["math", "sdpa"])
def test_is_the_papers_definition_with_gradients(n_kv_heads: int | None, backend: str) -> None:
    built = probe(n_kv_heads=n_kv_heads).double()
    if backend == "sdpa":
        built.backend = SDPA(SDPA.Config(), tiny.DIMS)
    x = tiny.floats(2, T, 32, dtype=torch.float64)
    found = []
    for call in (built, lambda x: torch.stack([definition(built.part, row) for row in x])):
        built.zero_grad()
        y = call(x)
        (y * tiny.floats(*y.shape, seed=3)).sum().backward()
        found.append([y.detach(), *(p.grad.clone() for p in built.parameters())])
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact, atol=1e-9, rtol=1e-9)


def test_an_odd_number_of_heads_is_split_instead_of_paired() -> None:
    dims = Dims(dim=24, n_heads=3, head_dim=8, n_layers=1, context=16, vocab_size=5)
    built = probe(dims).double()
    part = built.part
    assert (part.width, part.rotary_dim, part.head_norm.weight.numel()) == (4, 4, 8)
    x = tiny.floats(1, T, 24, dtype=torch.float64)
    torch.testing.assert_close(built(x)[0], definition(part, x[0]), atol=1e-12, rtol=1e-12)
    built.position = RoPE(RoPE.Config(), dims)
    assert not torch.allclose(built(x), definition(part, x[0]), atol=1e-3)


def test_both_maps_of_a_head_have_neighbouring_biases() -> None:
    built = probe().double()
    built.position = ALiBi(ALiBi.Config(), tiny.DIMS)
    x = tiny.floats(1, T, 32, dtype=torch.float64)
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)
    places = torch.arange(T)
    bias = slopes.view(4, 1, 1) * (places - places[:, None])
    torch.testing.assert_close(built(x)[0], definition(built.part, x[0], bias), atol=1e-6, rtol=0)


def test_lambda_starts_where_the_paper_has_it_and_learns() -> None:
    for layer, start in ((0, 0.2), (1, 0.355509), (11, 0.777870)):
        mixer = DifferentialAttention(DifferentialAttention.Config(), tiny.DIMS.at(layer))
        assert mixer.lambda_init == pytest.approx(start, abs=1e-6)
    with torch.no_grad():
        for name in ("lambda_a1", "lambda_b1", "lambda_a2", "lambda_b2"):
            mixer.get_parameter(name).fill_(0.5 if name.endswith("1") else 0.25)
    # 8 channels: exp(8 * 0.25) - exp(8 * 0.0625) + 0.777870 = 7.389056 - 1.648721 + 0.777870.
    assert float(mixer.strength().detach()) == pytest.approx(6.518205, abs=1e-5)
    fixed = DifferentialAttention(DifferentialAttention.Config(lambda_init=0.8), tiny.DIMS)
    assert fixed.lambda_init == 0.8


def test_what_both_maps_share_cancels_out() -> None:
    built = probe(lambda_init=0.5)
    part = built.part
    with torch.no_grad():
        for linear in (part.q, part.k):
            heads = linear.weight.view(2, 2, 8, 32)
            heads[:, 1] = heads[:, 0]
        part.lambda_a1.copy_(part.lambda_a2)
        part.lambda_b1.copy_(part.lambda_b2)
    single = {"head_norm": torch.nn.Identity(), "strength": lambda: torch.tensor(1.0)}
    for name, value in single.items():
        setattr(part, name, value)
    assert built(built.inputs()).abs().max() < 1e-6


def test_parameters_and_cache_are_those_of_multi_head_attention() -> None:
    plain = MHA(MHA.Config(), tiny.DIMS)
    mixer = DifferentialAttention(DifferentialAttention.Config(), tiny.DIMS)
    extra = 4 * mixer.width + 2 * mixer.width
    counts = [sum(p.numel() for p in m.parameters()) for m in (plain, mixer)]
    assert counts[1] == counts[0] + extra
    args = 2, 9, torch.device("cpu"), torch.float32
    cache = mixer.new_cache(*args)
    assert isinstance(cache, KVCache)
    assert (cache.k.shape, cache.v.shape) == ((2, 4, 10, 8), (2, 2, 10, 16))
    assert cache.bytes_per_token() == plain.new_cache(*args).bytes_per_token()


def test_a_window_is_kept_on_the_cache() -> None:
    built = probe(window=3)
    x = built.inputs(2, T)
    cache = built.new_cache(2, T, x)
    with torch.no_grad():
        found = torch.cat([built.step(part, cache) for part in x.split((3, 1, 3), 1)], 1)
        torch.testing.assert_close(found, built(x))
        assert isinstance(cache.layers[0], RingCache)
        assert not torch.allclose(found, built(x, mask=Mask(T, T, causal=False)), atol=1e-3)


def test_numbers_that_make_no_pairs_are_refused() -> None:
    with pytest.raises(RequestError, match=r"n_heads=4 and n_kv_heads=1 must both be even; choose"):
        probe(n_kv_heads=1)
    odd = replace(tiny.DIMS, n_heads=3, head_dim=5)
    with pytest.raises(RequestError, match=r"n_heads=3 .* head_dim=5 is odd: choose"):
        probe(odd)
    with pytest.raises(RequestError, match="lambda_init=1"):
        DifferentialAttention.Config(lambda_init=1.0)
