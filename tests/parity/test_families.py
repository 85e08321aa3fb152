"""Families that the importer does not know, from parts: GPT-NeoX, BLOOM, Gemma 2, T5's attention.

Random weights of transformers are copied over; states and the gradient of every layer's weight are
the same.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F
from transformers.models.t5.modeling_t5 import T5Attention

from txlab.core.config import Dims
from txlab.models import Decoder
from txlab.nn.attention import GQA, MHA
from txlab.nn.ffn import GEGLU, MLP, Activation
from txlab.nn.mask import Mask
from txlab.nn.norm import LayerNorm, RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.position import T5, ALiBi, RoPE
from txlab.nn.residual import Parallel, Pre, Sandwich
from txlab.testing.probes import MixerProbe

transformers.logging.set_verbosity_error()
DIM, HEADS, HEAD_DIM, HIDDEN, LAYERS, VOCAB, LENGTH = 32, 4, 8, 48, 3, 61, 12
SIZES = {
    "dim": DIM,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "context": 32,
    "vocab_size": VOCAB,
    "tie_embeddings": False,
}
EAGER = {"vocab_size": VOCAB, "hidden_size": DIM, "attn_implementation": "eager"}
Tensors = dict[str, Tensor]


def shaken(model: Any) -> Any:
    """In evaluation mode, with every weight large enough to matter."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * (DIM**-0.5 if parameter.ndim > 1 else 0.5))
    return model.eval()


def split(found: Tensors, there: str, here: str) -> Tensors:
    """q, k and v out of one projection that holds them head by head."""
    parts = {}
    for leaf in ("weight", "bias"):
        fused = found[f"{there}.{leaf}"].unflatten(0, (HEADS, 3, HEAD_DIM))
        for i, name in enumerate("qkv"):
            parts[f"{here}.{name}.{leaf}"] = fused[:, i].flatten(0, 1)
    return parts


def renamed(found: Tensors, names: dict[str, str]) -> Tensors:
    """Weight and bias, where there is one, of each module."""
    return {
        f"{ours}.{leaf}": found[f"{theirs}.{leaf}"]
        for theirs, ours in names.items()
        for leaf in ("weight", "bias")
        if f"{theirs}.{leaf}" in found
    }


def neox() -> tuple[Any, Decoder.Config, Callable[[Tensors], Tensors]]:
    """Rotary positions on half of the channels; attention and feed-forward side by side."""
    peer = transformers.GPTNeoXModel(
        transformers.GPTNeoXConfig(
            **EAGER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=HIDDEN,
            rotary_pct=0.5,
            max_position_embeddings=32,
        )
    )
    config = Decoder.Config(
        **SIZES,
        attn=MHA.Config(qkv_bias=True, out_bias=True),
        pos=RoPE.Config(partial=0.5),
        norm=LayerNorm.Config(),
        residual=Parallel.Config(shared_norm=False),
        ffn=MLP.Config(hidden=HIDDEN, bias=True),
    )

    def carry(found: Tensors) -> Tensors:
        made = renamed(found, {"embed_in": "embed", "final_layer_norm": "norm"})
        for i in range(LAYERS):
            made |= split(found, f"layers.{i}.attention.query_key_value", f"layers.{i}.attn")
            names = {
                "input_layernorm": "residual.norms.attn",
                "post_attention_layernorm": "residual.norms.ffn",
                "attention.dense": "attn.o",
                "mlp.dense_h_to_4h": "ffn.up",
                "mlp.dense_4h_to_h": "ffn.down",
            }
            made |= renamed(found, {f"layers.{i}.{a}": f"layers.{i}.{b}" for a, b in names.items()})
        return made

    return peer, config, carry


def bloom() -> tuple[Any, Decoder.Config, Callable[[Tensors], Tensors]]:
    """ALiBi. Its norm of the embeddings depends on the token alone: it is worked into the table."""
    peer = transformers.BloomModel(transformers.BloomConfig(**EAGER, n_layer=LAYERS, n_head=HEADS))
    config = Decoder.Config(
        **SIZES,
        attn=MHA.Config(qkv_bias=True, out_bias=True),
        pos=ALiBi.Config(),
        norm=LayerNorm.Config(),
        residual=Pre.Config(),
        ffn=MLP.Config(bias=True, activation=Activation.gelu_tanh),
    )

    def carry(found: Tensors) -> Tensors:
        embed = F.layer_norm(
            found["word_embeddings.weight"],
            (DIM,),
            found["word_embeddings_layernorm.weight"],
            found["word_embeddings_layernorm.bias"],
        )
        made = {"embed.weight": embed, **renamed(found, {"ln_f": "norm"})}
        for i in range(LAYERS):
            made |= split(found, f"h.{i}.self_attention.query_key_value", f"layers.{i}.attn")
            names = {
                "input_layernorm": "residual.norms.attn",
                "post_attention_layernorm": "residual.norms.ffn",
                "self_attention.dense": "attn.o",
                "mlp.dense_h_to_4h": "ffn.up",
                "mlp.dense_4h_to_h": "ffn.down",
            }
            made |= renamed(found, {f"h.{i}.{a}": f"layers.{i}.{b}" for a, b in names.items()})
        return made

    return peer, config, carry


def gemma2() -> tuple[Any, Decoder.Config, Callable[[Tensors], Tensors]]:
    """Norms around each branch, weights as distances from 1, capped scores, windows in turn."""
    peer = transformers.Gemma2Model(
        transformers.Gemma2Config(
            **EAGER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=2,
            head_dim=HEAD_DIM,
            intermediate_size=HIDDEN,
            query_pre_attn_scalar=HEAD_DIM,
            attn_logit_softcapping=2.0,
            sliding_window=4,
            max_position_embeddings=32,
        )
    )
    assert peer.config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    config = Decoder.Config(
        **SIZES,
        attn=GQA.Config(n_kv_heads=2, softcap=2.0),
        pattern=Pattern(attn=[{"name": "gqa", "window": 4}, "gqa"]),
        norm=RMSNorm.Config(eps=1e-6, offset=True),
        residual=Sandwich.Config(),
        ffn=GEGLU.Config(hidden=HIDDEN, approximate=True),
    )

    def carry(found: Tensors) -> Tensors:
        made = {"embed.weight": found["embed_tokens.weight"] * DIM**0.5}
        made |= renamed(found, {"norm": "norm"})
        for i in range(LAYERS):
            names = {
                "input_layernorm": "residual.norms.attn",
                "post_attention_layernorm": "residual.after.attn",
                "pre_feedforward_layernorm": "residual.norms.ffn",
                "post_feedforward_layernorm": "residual.after.ffn",
                **{f"self_attn.{part}_proj": f"attn.{part}" for part in "qkvo"},
                **{f"mlp.{part}_proj": f"ffn.{part}" for part in ("gate", "up", "down")},
            }
            made |= renamed(found, {f"layers.{i}.{a}": f"layers.{i}.{b}" for a, b in names.items()})
        return made

    return peer, config, carry


@pytest.mark.parametrize("family", [neox, bloom, gemma2])
def test_same_states_and_gradients(family: Any) -> None:
    peer, config, carry = family()
    shaken(peer)
    ours = Decoder(config, config.dims()).eval()
    weights = carry(dict(peer.named_parameters()))
    missing = ours.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["head.weight"]
    assert not missing.unexpected_keys
    tokens = torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    expected, found = peer(tokens).last_hidden_state, ours(tokens).states
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    (expected * slope).sum().backward()
    (found * slope).sum().backward()
    gradients = carry({key: p.grad for key, p in peer.named_parameters()})
    for name, parameter in ours.named_parameters():
        if name.startswith(("layers.", "norm.")):
            assert parameter.grad is not None, name
            scale = gradients[name].abs().max().clamp(min=1)
            torch.testing.assert_close(
                parameter.grad / scale, gradients[name] / scale, atol=1e-4, rtol=0, msg=name
            )
    cache = ours.new_cache(3, LENGTH)
    parts = [ours(part, cache=cache).states for part in tokens.split((5, 1, 6), dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_t5s_attention_with_its_relative_bias(causal: bool) -> None:
    """T5 does not scale scores: our queries are its own times sqrt(head_dim)."""
    config = transformers.T5Config(
        d_model=DIM,
        d_kv=HEAD_DIM,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
        is_decoder=causal,
        dropout_rate=0.0,
        attn_implementation="eager",
    )
    peer = shaken(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
    dims = Dims(DIM, HEADS, HEAD_DIM, 1, 32, VOCAB, layer=0)
    scheme = T5(T5.Config(n_buckets=8, max_distance=10, bidirectional=not causal), dims)
    ours = MixerProbe(MHA(MHA.Config(), dims), dims, position=scheme)
    theirs = dict(peer.named_parameters())
    pairs = {f"part.{part}.weight": theirs[f"{part}.weight"] for part in "kvo"}
    pairs["position.table.weight"] = theirs["relative_attention_bias.weight"]
    stretch = HEAD_DIM**0.5
    ours.load_state_dict({**pairs, "part.q.weight": theirs["q.weight"] * stretch})
    x = torch.randn(2, 24, DIM, generator=torch.Generator().manual_seed(1))
    seen = torch.ones(24, 24, dtype=torch.bool).tril() if causal else torch.ones(24, 24).bool()
    hidden = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
    expected = peer(x, mask=hidden)[0]
    found = ours(x, mask=Mask(24, 24, causal=causal))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2))
    (expected * slope).sum().backward()
    (found * slope).sum().backward()
    for name, parameter in ours.named_parameters():
        wanted = pairs[name].grad if name in pairs else peer.q.weight.grad / stretch
        torch.testing.assert_close(parameter.grad, wanted, atol=1e-4, rtol=1e-4, msg=name)
