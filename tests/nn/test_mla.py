"""Latent attention: one cache vector a token, two forms of one function, sizes, adapters."""

import pytest
import torch

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.adapter.lora import LoRA
from txlab.nn.attention import MLA
from txlab.nn.cache import KVCache
from txlab.nn.mask import Mask
from txlab.nn.pattern import Pattern
from txlab.nn.position import RoPE, position
from txlab.nn.ring import RingCache
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe


def probe(**fields: object) -> MixerProbe:
    mixer = MLA(MLA.Config(**fields), tiny.DIMS)
    tiny.shake(mixer)
    return MixerProbe(mixer, tiny.DIMS, position=RoPE(RoPE.Config(), tiny.DIMS)).eval()


def test_the_paper_s_sizes_follow_from_its_head() -> None:
    # DeepSeek-V2: dim 5120, 128 heads of 128; latent 512, rotary 64, queries 1536.
    dims = Dims(dim=5120, n_heads=128, head_dim=128, n_layers=1, context=8, vocab_size=5)
    with torch.device("meta"):
        mixer = MLA(MLA.Config(q_rank=1536), dims)
    assert (mixer.kv_rank, mixer.rope_dim, mixer.nope_dim, mixer.v_dim) == (512, 64, 128, 128)
    assert sum(p.numel() for p in mixer.parameters()) == (
        5120 * 1536 + 1536 + 1536 * 128 * 192 + 5120 * 576 + 512 + 512 * 128 * 256 + 16384 * 5120
    )


def test_the_cache_holds_one_latent_and_one_rotary_key_a_token() -> None:
    model = tiny.model(attn=MLA.Config(kv_rank=12, rope_dim=6))
    cache = model.new_cache(2, 10)
    layer = cache.layers[0]
    assert isinstance(layer, KVCache)
    assert layer.k.shape == (2, 1, 11, 18)
    assert layer.v.numel() == 0
    assert layer.bytes_per_token() == 18 * 4


@pytest.mark.parametrize("fields", [{}, {"softcap": 2.0, "sink_logit": True, "gate": True}])
@torch.no_grad()
def test_both_forms_are_one_function(
    fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = probe(kv_rank=12, q_rank=9, v_dim=5, **fields).double()
    x = tiny.floats(2, 8, 32, dtype=torch.float64)
    found = []
    for form in (True, False):
        monkeypatch.setattr(MLA, "absorbs", lambda self, t, form=form: form)
        cache = built.new_cache(2, 8, x)
        found.append(torch.cat([built.step(part, cache) for part in x.split((5, 1, 2), 1)], 1))
    torch.testing.assert_close(found[0], found[1], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found[0], built(x), atol=1e-12, rtol=1e-12)


def test_few_queries_go_into_the_latent_space_and_many_do_not() -> None:
    dims = Dims(dim=512, n_heads=4, head_dim=128, n_layers=1, context=8, vocab_size=5)
    with torch.device("meta"):
        mixer = MLA(MLA.Config(), dims)
    assert mixer.kv_rank == 512
    # 512 * 256 = 131,072 operations a key and head to expand it, 768 a query to leave it.
    assert [mixer.absorbs(t) for t in (1, 170, 171)] == [True, True, False]
    assert not probe(qk_norm=True).part.absorbs(1)


@torch.no_grad()
def test_an_adapter_on_the_latent_projections_is_not_left_out_when_decoding() -> None:
    model = tiny.model(attn=MLA.Config())
    LoRA(LoRA.Config(targets=["k", "v"])).inject(model)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            parameter.copy_(tiny.floats(*parameter.shape, seed=len(name)))
    tokens = tiny.tokens(2, 6)
    cache = model.new_cache(2, 6)
    found = torch.cat([model(token, cache=cache).states for token in tokens.split(1, 1)], 1)
    torch.testing.assert_close(found, model(tokens).states, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", position.options)
def test_works_with_every_positional_scheme(name: str) -> None:
    model = tiny.model(attn=MLA.Config(rope_dim=6), pos=position.config(name))
    tokens = tiny.tokens(2, 9)
    expected = model(tokens).states
    cache = model.new_cache(2, 9)
    with torch.no_grad():
        found = [model(part, cache=cache).states for part in tokens.split((4, 1, 4), 1)]
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_only_the_shared_part_turns_and_by_its_own_angles() -> None:
    built = probe(rope_dim=4)
    x = built.inputs(1, 5)
    far = torch.tensor([[0, 1, 2, 3, 40]])
    y = built(x, positions=far)
    angles = built.position.for_heads(4).prepare(far)
    assert angles[0].shape[-1] == 4
    assert not torch.allclose(y, built(x, positions=far * 0), atol=1e-4)
    built.part.k_rope.weight.zero_()
    torch.testing.assert_close(built(x, positions=far), built(x, positions=far * 0))


def test_layers_of_different_rotary_widths_share_one_scheme() -> None:
    pattern = Pattern(attn=["mla", "gqa"])
    model = tiny.model(pattern=pattern)
    assert model.layers.groups == [0, 1]
    assert sum(name.startswith("layer_pos") for name, _ in model.named_modules()) == 0
    assert model(tiny.tokens(1, 5)).states.isfinite().all()


def test_sizes_that_mean_nothing_are_refused() -> None:
    for fields in ({"kv_rank": 0}, {"q_rank": -1}, {"rope_dim": 3}, {"v_dim": 0}):
        with pytest.raises(RequestError, match=next(iter(fields))):
            MLA.Config(**fields)


@torch.no_grad()
def test_a_window_bounds_both_forms() -> None:
    built = probe(window=3)
    x = built.inputs(1, 8)
    expected = built(x)
    assert not torch.allclose(expected, probe()(x), atol=1e-4)
    torch.testing.assert_close(
        built(x[:, 5:], positions=torch.arange(5, 8)[None])[:, -1:], expected[:, -1:]
    )
    cache = built.new_cache(1, 8, x)
    found = torch.cat([built.step(part, cache) for part in x.split(1, 1)], 1)
    torch.testing.assert_close(found, expected)
    ring = cache.layers[0]
    assert isinstance(ring, RingCache)
    assert (ring.k.shape[2], ring.v.numel()) == (4, 0)
    assert built(x, mask=Mask(8, 8, causal=False)).isfinite().all()
