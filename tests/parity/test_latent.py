"""Latent attention of transformers (DeepSeek-V2 and V3), weights copied: same values, gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV2Config, DeepseekV3Config
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

from txlab.core.config import Dims
from txlab.nn.attention import MLA
from txlab.nn.position import RoPE
from txlab.nn.position.scaling import Scaling
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe

SHAPE: dict[str, Any] = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "max_position_embeddings": 32,
    "attn_implementation": "eager",
}
DIMS = Dims(dim=24, n_heads=4, head_dim=6, n_layers=1, context=32, vocab_size=5)
FIELDS = {"kv_rank": 10, "nope_dim": 6, "rope_dim": 4, "v_dim": 5}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 8,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
}
SCALED = {
    "scaling": Scaling.yarn,
    "factor": 4.0,
    "original_context": 8,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
}
T = 9


def theirs(family: str, **fields: Any) -> tuple[Any, Any]:
    """Their attention with random weights, and its rotary embedding."""
    config, module = (DeepseekV2Config, v2) if family == "V2" else (DeepseekV3Config, v3)
    made = config(**SHAPE | {"head_dim": 4} | fields)
    attention = getattr(module, f"Deepseek{family}Attention")(made, 0)
    tiny.shake(attention)
    return attention.eval(), getattr(module, f"Deepseek{family}RotaryEmbedding")(made)


def ours(peer: Any, pos: dict[str, Any], **fields: Any) -> MixerProbe:
    """Our attention with their weights."""
    mixer = MLA(MLA.Config(**FIELDS | fields), DIMS)
    h, names = 4, dict(peer.state_dict())
    down, kv = names["kv_a_proj_with_mqa.weight"], names["kv_b_proj.weight"].view(h, 6 + 5, 10)
    copied = {
        "kv_down.weight": down[:10],
        "k_rope.weight": down[10:],
        "kv_down_norm.weight": names["kv_a_layernorm.weight"],
        "k.weight": kv[:, :6].flatten(0, 1),
        "v.weight": kv[:, 6:].flatten(0, 1),
        "o.weight": names["o_proj.weight"],
    }
    if mixer.q_down is None:
        copied["q.weight"] = names["q_proj.weight"]
    else:
        copied |= {
            "q_down.weight": names["q_a_proj.weight"],
            "q_down_norm.weight": names["q_a_layernorm.weight"],
            "q.weight": names["q_b_proj.weight"],
        }
    if "o_proj.bias" in names:
        copied["kv_down.bias"] = names["kv_a_proj_with_mqa.bias"][:10]
        copied["k_rope.bias"] = names["kv_a_proj_with_mqa.bias"][10:]
        copied["o.bias"] = names["o_proj.bias"]
        if mixer.q_down is not None:
            copied["q_down.bias"] = names["q_a_proj.bias"]
    wanted = set(mixer.state_dict())
    if mixer.q_down is None and "q.bias" in wanted:  # theirs has none there
        copied["q.bias"] = torch.zeros(40)
    mixer.load_state_dict(copied, strict=True)
    position = RoPE(RoPE.Config(interleaved=True, **pos), DIMS)
    return MixerProbe(mixer, DIMS, position=position).eval()


def run(peer: Any, rotary: Any, x: Tensor) -> Tensor:
    hidden = torch.full((T, T), float("-inf")).triu(1)[None, None]
    return peer(x, attention_mask=hidden, position_embeddings=rotary(x, torch.arange(T)[None]))[0]


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "V2": ("V2", {"q_lora_rank": 7}, {"q_rank": 7}, {}),
    "V2 Lite": ("V2", {"q_lora_rank": None}, {}, {}),
    "V2 biases": (
        "V2",
        {"q_lora_rank": 7, "attention_bias": True},
        {"q_rank": 7, "qkv_bias": True, "out_bias": True},
        {},
    ),
    "V3": ("V3", {"q_lora_rank": 7, "rope_interleave": True}, {"q_rank": 7}, {}),
    "V2 yarn": ("V2", {"q_lora_rank": 7, "rope_parameters": YARN}, {"q_rank": 7}, SCALED),
    "V3 yarn": ("V3", {"q_lora_rank": None, "rope_parameters": YARN}, {}, SCALED),
}


@pytest.mark.parametrize("name", CASES)
def test_same_values_and_gradients(name: str) -> None:
    family, fields, mine, pos = CASES[name]
    peer, rotary = theirs(family, **fields)
    built = ours(peer, pos, **mine)
    x = tiny.floats(2, T, 24)
    found: list[list[Tensor]] = []
    for call in (lambda x: run(peer, rotary, x), built):
        leaf = x.clone().requires_grad_()
        y = call(leaf)
        (y * tiny.floats(*y.shape, seed=3)).sum().backward()
        assert leaf.grad is not None
        found.append([y.detach(), leaf.grad])
    assert found[0][0].std() > 0.1
    for ours_, theirs_ in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours_, theirs_, atol=1e-4, rtol=1e-4)
    down = peer.kv_a_proj_with_mqa.weight.grad
    torch.testing.assert_close(built.part.kv_down.weight.grad, down[:10], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(built.part.k_rope.weight.grad, down[10:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_same_values_decoded_in_the_latent_space(name: str) -> None:
    family, fields, mine, pos = CASES[name]
    peer, rotary = theirs(family, **fields)
    built = ours(peer, pos, **mine)
    x = tiny.floats(2, T, 24)
    cache = built.new_cache(2, T, x)
    assert [built.part.absorbs(n) for n in (1, 4, 5, 100)] == [True, True, True, False]
    found = torch.cat([built.step(part, cache) for part in x.split((4, 1, 1, 3), 1)], 1)
    torch.testing.assert_close(found, run(peer, rotary, x), atol=1e-4, rtol=1e-4)


def test_halves_instead_of_neighbours_are_a_reordering_of_the_rotary_rows() -> None:
    peer, rotary = theirs("V2", q_lora_rank=None)
    built = ours(peer, {})
    order = torch.tensor([0, 2, 1, 3])
    with torch.no_grad():
        part, h = built.part, 4
        part.k_rope.weight.copy_(part.k_rope.weight[order])
        q = part.q.weight.view(h, 10, 24)
        q[:, 6:] = q[:, 6:][:, order].clone()
        built.position = RoPE(RoPE.Config(), DIMS)
        x = tiny.floats(2, T, 24)
        torch.testing.assert_close(built(x), run(peer, rotary, x), atol=1e-4, rtol=1e-4)
