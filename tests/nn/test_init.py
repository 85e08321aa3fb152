"""Initialisations: what role each tensor has, and the numbers each role gets."""

import math

import pytest
import torch
from torch import nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.models.decoder import Decoder
from txlab.nn.attention import MHA
from txlab.nn.ffn import SwiGLU
from txlab.nn.init import GPT2Init, LlamaInit, Normal, roles
from txlab.nn.norm import LayerNorm
from txlab.nn.position import Learned, RoPE
from txlab.nn.residual import Parallel

DIMS = Dims(dim=64, n_heads=4, head_dim=16, n_layers=3, context=128, vocab_size=512)


def decoder(init, tied=True, pos=None, device="cpu"):
    config = Decoder.Config(
        dim=64,
        n_layers=3,
        n_heads=4,
        context=128,
        vocab_size=512,
        tie_embeddings=tied,
        attn=MHA.Config(qkv_bias=True, out_bias=True, qk_norm=True),
        pos=pos or Learned.Config(),
        norm=LayerNorm.Config(),
        ffn=SwiGLU.Config(bias=True),
        init=init,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return Decoder(config, config.dims())


def spread(tensor: torch.Tensor) -> float:
    return tensor.double().std().item()


def test_roles():
    found = {name: (role, layer) for name, _, role, layer in roles(decoder(GPT2Init.Config()))}
    assert found["embed.weight"] == ("embed", 0)
    assert found["pos.table.weight"] == ("position", 0)
    assert "head.weight" not in found
    for name in ("attn.q", "attn.k", "attn.v", "ffn.gate", "ffn.up"):
        assert found[f"layers.2.{name}.weight"] == ("in", 2)
    for name in ("attn.o", "ffn.down"):
        assert found[f"layers.2.{name}.weight"] == ("out", 2)
    for name in ("attn.q", "attn.k", "attn.v", "ffn.gate", "ffn.down"):
        assert found[f"layers.1.{name}.bias"] == ("bias", 1)
    for name in ("attn.q_norm", "attn.k_norm", "residual.norms.attn"):
        assert found[f"layers.0.{name}.weight"] == ("other", 0)
    assert found["norm.bias"] == ("other", 0)
    untied = decoder(GPT2Init.Config(), tied=False)
    assert {name: role for name, _, role, _ in roles(untied)}["head.weight"] == "head"
    assert len(roles(untied)) == len(list(untied.parameters()))


def test_a_tied_head_that_is_registered_first_is_still_the_embedding():
    model = nn.Module()
    model.head = nn.Linear(4, 8, bias=False)
    model.embed = nn.Embedding(8, 4)
    model.embed.weight = model.head.weight
    assert [row[0::2] for row in roles(model)] == [("embed.weight", "embed")]


def test_gpt2():
    """0.02; outputs / sqrt(2 n_layers); positions 0.01; biases 0; norms as made."""
    model = decoder(GPT2Init.Config(), tied=False)
    for tensor in (model.embed.weight, model.head.weight, model.layers[1].ffn.up.weight):
        assert spread(tensor) == pytest.approx(0.02, rel=0.05)
    for layer in model.layers:
        for out in (layer.attn.o, layer.ffn.down):
            assert spread(out.weight) == pytest.approx(0.02 / math.sqrt(6), rel=0.05)
    assert spread(model.pos.table.weight) == pytest.approx(0.01, rel=0.05)
    for name, tensor in model.named_parameters():
        if name.endswith("bias"):
            assert tensor.eq(0).all(), name
        elif tensor.ndim == 1:
            assert tensor.eq(1).all(), name


def test_llama():
    """0.02 cut at 3 std; outputs / sqrt(2 (layer + 1)); an untied head dim^-0.5."""
    model = decoder(LlamaInit.Config(), tied=False)
    cut = math.sqrt(1 - 6 * math.exp(-4.5) / math.sqrt(2 * math.pi) / math.erf(3 / math.sqrt(2)))
    for tensor, std in [
        (model.embed.weight, 0.02),
        (model.head.weight, 64**-0.5),
        (model.layers[1].attn.q.weight, 0.02),
        *(
            (layer.ffn.down.weight, 0.02 / math.sqrt(2 * (i + 1)))
            for i, layer in enumerate(model.layers)
        ),
    ]:
        assert spread(tensor) == pytest.approx(std * cut, rel=0.04)
        assert tensor.abs().max() <= 3 * std
    tied = decoder(LlamaInit.Config())
    assert spread(tied.head.weight) == pytest.approx(0.02 * cut, rel=0.05)
    loose = decoder(LlamaInit.Config(std=0.1, cut=1.0))
    assert loose.embed.weight.abs().max() <= 0.1


@pytest.mark.parametrize("init", [GPT2Init, LlamaInit])
def test_same_seed_same_weights_and_every_tensor_is_filled(init):
    """Two models agree bit for bit, and so does one built on the meta device and then filled."""
    first, second = decoder(init.Config()), decoder(init.Config())
    empty = decoder(init.Config(), device="meta").to_empty(device="cpu")
    for tensor in empty.parameters():
        nn.init.constant_(tensor, torch.nan)
    empty.head.weight = empty.embed.weight
    for model in (second, empty):
        torch.manual_seed(7)
        init(init.Config(), DIMS).apply(model, empty=model is empty)
    torch.manual_seed(7)
    init(init.Config(), DIMS).apply(first)
    for (name, a), b, c in zip(
        first.named_parameters(), second.parameters(), empty.parameters(), strict=True
    ):
        assert torch.equal(a, b), name
        assert torch.equal(a, c), name


def test_a_module_that_cannot_start_empty_is_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.full((3,), 0.5))

    model = nn.Sequential(Own())
    init = GPT2Init(GPT2Init.Config(), DIMS)
    init.apply(model)
    assert model[0].gain.eq(0.5).all()
    with pytest.raises(TypeError, match=r"Own at 0 .* gain would stay unfilled"):
        init.apply(model, empty=True)


def test_a_parameter_that_an_inherited_reset_forgets_is_named():
    """A subclass adds a parameter, and the reset_parameters() above knows nothing of it."""

    class Tempered(MHA):
        def __init__(self, config, dims):
            super().__init__(config, dims)
            self.heat = nn.Parameter(torch.ones(dims.n_heads))
            self.register_buffer("order", torch.arange(3), persistent=False)

    model = nn.Sequential(Tempered(MHA.Config(sink_logit=True), DIMS))
    with pytest.raises(TypeError, match=r"at 0 .*: heat, order would stay .* fills them too"):
        GPT2Init(GPT2Init.Config(), DIMS).apply(model, empty=True)
    plain = nn.Sequential(MHA(MHA.Config(sink_logit=True), DIMS))
    GPT2Init(GPT2Init.Config(), DIMS).apply(plain, empty=True)
    assert plain[0].sink_logit.eq(0).all()


def test_table_can_be_read():
    model = decoder(LlamaInit.Config(), pos=RoPE.Config())
    table = dict(LlamaInit(LlamaInit.Config(), DIMS).table(model))
    assert table["layers.1.attn.o.weight"] == "N(0, 0.01), cut at 3 std"
    assert table["layers.1.attn.o.bias"] == "0"
    assert table["norm.weight"] == "as made"
    assert len(table) == len(list(model.parameters()))
    assert str(Normal(0.02)) == "N(0, 0.02)"


@pytest.mark.parametrize("init", [GPT2Init, LlamaInit])
def test_parallel_outputs_are_scaled_too(init):
    config = Decoder.Config(
        dim=64, n_heads=4, vocab_size=512, residual=Parallel.Config(), init=init.Config()
    )
    model = Decoder(config, config.dims())
    first = model.layers[0].attn.o.weight
    assert spread(first) < 0.8 * 0.02


def test_bad_fields_are_refused():
    with pytest.raises(RequestError, match="std"):
        GPT2Init.Config(std=0)
    with pytest.raises(RequestError, match="cut"):
        LlamaInit.Config(cut=-1)
