"""Attention layers of transformers with windows, caps and sinks: the same values and gradients."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2RotaryEmbedding
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRotaryEmbedding

from txlab.core.config import Dims
from txlab.nn.attention import GQA, SWA
from txlab.nn.backend import Auto, Banded
from txlab.nn.mask import Mask
from txlab.nn.position import RoPE
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe

DIMS = Dims(dim=32, n_heads=4, head_dim=8, n_layers=2, context=32, vocab_size=61)
LENGTH, W = 13, 4
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 32,
    "sliding_window": W,
    "attn_implementation": "eager",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
GEMMA = {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 1.5}
BIASES = {"qkv_bias": True, "out_bias": True, "sink_logit": True}


def mistral() -> tuple[nn.Module, nn.Module]:
    config = transformers.MistralConfig(**SHAPE)
    return MistralAttention(config, 0), MistralRotaryEmbedding(config)


def gemma(layer: int) -> tuple[nn.Module, nn.Module]:
    config = transformers.Gemma2Config(**SHAPE, **GEMMA)
    assert config.layer_types[:2] == ["sliding_attention", "full_attention"]
    return Gemma2Attention(config, layer), Gemma2RotaryEmbedding(config)


def gpt_oss(layer: int) -> tuple[nn.Module, nn.Module]:
    config = transformers.GptOssConfig(**SHAPE)
    assert config.layer_types[:2] == ["sliding_attention", "full_attention"]
    return GptOssAttention(config, layer), GptOssRotaryEmbedding(config)


CASES = {
    "mistral": (mistral, SWA.Config(n_kv_heads=2, window=W)),
    "gemma 2, local": (lambda: gemma(0), SWA.Config(n_kv_heads=2, window=W, softcap=1.5)),
    "gemma 2, global": (lambda: gemma(1), GQA.Config(n_kv_heads=2, softcap=1.5)),
    "gpt-oss, local": (lambda: gpt_oss(0), SWA.Config(n_kv_heads=2, window=W, **BIASES)),
    "gpt-oss, global": (lambda: gpt_oss(1), GQA.Config(n_kv_heads=2, **BIASES)),
}


def named(theirs: nn.Module) -> dict[str, Tensor]:
    """Their parameters by our names."""
    names = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "sinks": "sink_logit"}
    found = {}
    for name, parameter in theirs.named_parameters():
        first, dot, rest = name.partition(".")
        found[names[first] + dot + rest] = parameter
    return found


def additive(window: int | None) -> Tensor:
    """Their mask [1 1 t t], written out: 0 where seen."""
    q, k = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    seen = (k <= q) & (q - k < (window or LENGTH))
    return torch.zeros(LENGTH, LENGTH).masked_fill(~seen, torch.finfo(torch.float32).min)[
        None, None
    ]


@pytest.mark.parametrize("kernel", ["math", "auto", "banded"])
@pytest.mark.parametrize("name", CASES)
def test_same_values_and_gradients(name: str, kernel: str) -> None:
    make, config = CASES[name]
    theirs, rotary = make()
    tiny.shake(theirs, 3)
    kernels = {"math": None, "auto": Auto(Auto.Config(), DIMS), "banded": Banded(few(), DIMS)}
    kind = SWA if isinstance(config, SWA.Config) else GQA
    ours = MixerProbe(
        kind(config, DIMS), DIMS, position=RoPE(RoPE.Config(), DIMS), backend=kernels[kernel]
    )
    ours.part.load_state_dict(named(theirs), strict=True)
    x = tiny.floats(2, LENGTH, 32, seed=4)
    weight = tiny.floats(2, LENGTH, 32, seed=5)
    positions = torch.arange(LENGTH)[None]
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = theirs(
        other, position_embeddings=rotary(other, positions), attention_mask=additive(config.window)
    )[0]
    found = ours(mine, mask=Mask(LENGTH, LENGTH))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad, atol=1e-4, rtol=1e-4)
    for key, parameter in named(theirs).items():
        slope = ours.part.get_parameter(key).grad
        torch.testing.assert_close(slope, parameter.grad, atol=1e-4, rtol=1e-4, msg=key)


def few() -> Banded.Config:
    return Banded.Config(run=4)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_decoding_on_the_cache_is_their_full_pass(name: str) -> None:
    make, config = CASES[name]
    theirs, rotary = make()
    tiny.shake(theirs, 3)
    kind = SWA if isinstance(config, SWA.Config) else GQA
    ours = MixerProbe(kind(config, DIMS), DIMS, position=RoPE(RoPE.Config(), DIMS))
    ours.part.load_state_dict(named(theirs), strict=True)
    x = tiny.floats(2, LENGTH, 32, seed=4)
    embeddings = rotary(x, torch.arange(LENGTH)[None])
    mask = additive(config.window)
    expected = theirs(x, position_embeddings=embeddings, attention_mask=mask)[0]
    cache = ours.new_cache(2, LENGTH, x)
    found = torch.cat([ours.step(part, cache) for part in x.split((6, 1, 1, 3, 1, 1), 1)], 1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
