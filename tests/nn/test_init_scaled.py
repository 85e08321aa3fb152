"""Initialisations whose numbers follow from fans, depth or width."""

import math
from dataclasses import replace

import pytest
import torch

from tests.nn.test_init import decoder, spread
from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.models.hf.describe import describe
from txlab.nn.ffn import MoE, SwiGLU
from txlab.nn.init import (
    DeepNormInit,
    GPT2Init,
    MuPInit,
    SmallInit,
    Uniform,
    XavierInit,
    init,
)
from txlab.nn.position import RoPE
from txlab.testing import tiny

DIMS = Dims(dim=64, n_heads=4, head_dim=16, n_layers=3, context=128, vocab_size=512)


def near(tensor: torch.Tensor, std: float) -> bool:
    return spread(tensor) == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize("uniform", [True, False])
def test_xavier_follows_the_fans(uniform):
    """64 -> 192: sqrt(6 / 256) is the reach, sqrt(2 / 256) the standard deviation."""
    model = decoder(XavierInit.Config(uniform=uniform))
    up, q = model.layers[0].ffn.up.weight, model.layers[0].attn.q.weight
    assert up.shape == (192, 64)
    assert near(up, math.sqrt(2 / 256))
    assert near(q, math.sqrt(2 / 128))
    assert near(model.embed.weight, 64**-0.5)
    assert (up.abs().max() <= math.sqrt(6 / 256)) == uniform
    assert model.layers[0].ffn.up.bias.eq(0).all()
    louder = decoder(XavierInit.Config(uniform=uniform, gain=2.0)).layers[0].ffn.up.weight
    torch.testing.assert_close(louder, 2 * up)


@pytest.mark.parametrize("name", sorted(init.options))
def test_each_of_stacked_experts_starts_as_one_alone(name):
    """Fans are those of the last two axes, not of a tensor with one more."""
    start = {"init": init.config(name), "start": True}
    dims = replace(DIMS, n_layers=2)
    one = tiny.model(dims, ffn=SwiGLU.Config(hidden=192), **start)
    many = tiny.model(dims, ffn=MoE.Config(n_experts=64, hidden=192), **start)
    for layer in range(2):
        for linear in ("gate", "up", "down"):
            wanted = spread(getattr(one.layers[layer].ffn, linear).weight)
            for expert in getattr(many.layers[layer].ffn.experts, linear).weight:
                assert near(expert, wanted), (layer, linear)
                assert abs(expert.mean().item()) < 0.1 * wanted


def test_deepnorm_is_xavier_but_for_values_outputs_and_feed_forward():
    """3 layers: beta = 24^(-1/4) = 0.4518."""
    plain = decoder(XavierInit.Config(uniform=False)).state_dict()
    model = decoder(DeepNormInit.Config()).state_dict()
    changed = {
        name.split(".", 2)[2]
        for name, tensor in model.items()
        if name.startswith("layers") and not torch.equal(tensor, plain[name])
    }
    assert changed == {
        f"{p}.weight" for p in ("attn.v", "attn.o", "ffn.gate", "ffn.up", "ffn.down")
    }
    for name in sorted(changed):
        torch.testing.assert_close(
            model[f"layers.1.{name}"], 24**-0.25 * plain[f"layers.1.{name}"], msg=name
        )


def test_small():
    """dim 64, 3 layers: sqrt(2 / 320) = 0.0791; outputs 2 / (3 * 8) = 0.0833, capped at it."""
    model = decoder(SmallInit.Config())
    assert near(model.layers[0].attn.q.weight, 0.0790569)
    assert near(model.layers[0].attn.o.weight, 0.0790569)
    assert SmallInit(SmallInit.Config(), tiny.SIZES[2]).out_std == 2 / (3 * math.sqrt(48))
    deep = SmallInit(SmallInit.Config(), Dims(**{**DIMS.__dict__, "n_layers": 32}))
    assert str(deep.distribution("", model.embed.weight, "out", 5)) == "N(0, 0.007812)"


def test_mup_at_its_base_width_is_gpt2():
    ours = decoder(MuPInit.Config(base_dim=64), pos=RoPE.Config())
    gpt2 = decoder(GPT2Init.Config(), pos=RoPE.Config())
    for name, tensor in gpt2.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    assert ours.logit_scale == 1


def wide(dim: int, base: int) -> tuple[Dims, torch.nn.Module]:
    dims = Dims(dim=dim, n_heads=dim // 16, head_dim=16, n_layers=2, context=32, vocab_size=61)
    start = {"init": MuPInit.Config(base_dim=base), "start": True}
    return dims, tiny.model(dims, tie_embeddings=False, **start)


def test_mup_scales_matrices_and_logits_by_width():
    """Four times as wide: matrices half the size, logits a quarter of head times states."""
    _, model = wide(256, 64)
    assert near(model.embed.weight, 0.02)
    assert near(model.layers[0].attn.q.weight, 0.01)
    assert near(model.layers[0].attn.o.weight, 0.01 / 2)
    tokens = tiny.tokens(2, 9)
    full = []
    model.norm.register_forward_hook(lambda *call: full.append(call[2]))
    logits = model.logits(model(tokens).states)
    torch.testing.assert_close(logits, model.head(full[0]) / 4)


def test_mup_keeps_activations_at_any_width_and_lets_logits_shrink_by_its_root():
    """Embeddings and matrices act alike at all widths; a random head gives 1 / sqrt(width)."""
    found = {}
    for dim in (64, 1024):
        _, model = wide(dim, 64)
        seen = []
        model.layers[0].attn.q.register_forward_hook(lambda *call, s=seen: s.append(call[2]))
        logits = model.logits(model(tiny.tokens(4, 16)).states)
        found[dim] = (spread(seen[0]), spread(logits))
    assert found[1024][0] == pytest.approx(found[64][0], rel=0.1)
    assert found[1024][1] == pytest.approx(found[64][1] / 4, rel=0.15)


def test_a_model_of_theirs_cannot_scale_its_logits():
    _, model = wide(128, 64)
    with pytest.raises(RequestError, match=r"cannot express model\.init=logits times 0\.5"):
        describe(model.config)


def test_uniform_prints_and_fills():
    torch.manual_seed(0)
    tensor = torch.empty(10_000)
    Uniform(0.3).fill(tensor)
    assert str(Uniform(0.3)) == "U(-0.3, 0.3)"
    assert near(tensor, 0.3 / math.sqrt(3))


@pytest.mark.parametrize("name", ["xavier", "deepnorm", "mup"])
def test_bad_fields_are_refused(name):
    field = "base_dim" if name == "mup" else "gain"
    with pytest.raises(RequestError, match=field):
        init.config({"name": name, field: 0})
