"""Mixtures of experts of transformers, their weights copied over: values and gradients."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import (
    MixtralSparseMoeBlock,
    load_balancing_loss_func,
)

from txlab.core.config import Dims
from txlab.models import Decoder
from txlab.nn.attention import GQA
from txlab.nn.ffn import MoE
from txlab.nn.ffn.router import Scoring
from txlab.nn.norm import RMSNorm
from txlab.nn.position import RoPE
from txlab.testing import tiny
from txlab.testing.probes import FFNProbe

DIM, EXPERTS, HIDDEN = 32, 8, 24
DIMS = Dims(dim=DIM, n_heads=4, head_dim=8, n_layers=1, context=16, vocab_size=61)
DEEPSEEK = {
    "hidden_size": DIM,
    "intermediate_size": 48,
    "moe_intermediate_size": HIDDEN,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 2.5,
}
MIXTRAL = {"hidden_size": DIM, "intermediate_size": HIDDEN, "num_local_experts": EXPERTS}
GROUPED = {"n_group": 4, "topk_group": 2}


def mixtral(**fields: Any) -> nn.Module:
    return MixtralSparseMoeBlock(transformers.MixtralConfig(**MIXTRAL, **fields))


def deepseek2(**fields: Any) -> nn.Module:
    return DeepseekV2Moe(transformers.DeepseekV2Config(**DEEPSEEK, **fields))


def deepseek3(**fields: Any) -> nn.Module:
    config = transformers.DeepseekV3Config(**{**DEEPSEEK, "n_group": 1, "topk_group": 1, **fields})
    return DeepseekV3MoE(config)


SHARED = {"n_shared": 2, "top_k": 3, "scale": 2.5}
GREEDY = {"norm_top_k": False, **SHARED}
NOAUX = {"scoring": Scoring.sigmoid, "bias_rate": 0.001, **SHARED}
CASES: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], dict[str, Any]]] = {
    "mixtral": (mixtral, {}, {"top_k": 2}),
    "mixtral, top 3": (mixtral, {"num_experts_per_tok": 3}, {"top_k": 3}),
    "mixtral, softmax after": (mixtral, {}, {"top_k": 2, "scoring": Scoring.softmax_after}),
    "deepseek 2": (deepseek2, {"topk_method": "greedy"}, GREEDY),
    "deepseek 2 by group": (
        deepseek2,
        {"topk_method": "group_limited_greedy", **GROUPED},
        {**GREEDY, "n_groups": 4, "top_groups": 2},
    ),
    "deepseek 3": (deepseek3, {}, NOAUX),
    "deepseek 3, raw": (deepseek3, {"norm_topk_prob": False}, {**NOAUX, "norm_top_k": False}),
    "deepseek 3 by group": (deepseek3, GROUPED, {**NOAUX, "n_groups": 4, "top_groups": 2}),
}


def shaken(module: nn.Module, seed: int = 3) -> nn.Module:
    tiny.shake(module, seed)
    for name, buffer in module.named_buffers():
        if "bias" in name:
            buffer.copy_(0.2 * tiny.floats(*buffer.shape, seed=seed))
    return module


def pairs(
    theirs: Any, ours: Any, of: Callable[[Any], Any] = lambda tensor: tensor
) -> Iterable[tuple[Tensor, Tensor]]:
    """(theirs, ours) for the tensors of a block; of theirs, what `of` makes of it."""
    gate, up = of(theirs.experts.gate_up_proj).chunk(2, 1)
    yield of(theirs.gate.weight), ours.router.weight
    yield gate, ours.experts.gate.weight
    yield up, ours.experts.up.weight
    yield of(theirs.experts.down_proj), ours.experts.down.weight
    if ours.shared is not None:
        for name in ("gate", "up", "down"):
            yield (
                of(getattr(theirs.shared_experts, f"{name}_proj").weight),
                getattr(ours.shared, name).weight,
            )
    if ours.router.bias is not None:
        yield theirs.gate.e_score_correction_bias, ours.router.bias


def grad(tensor: Tensor) -> Tensor | None:
    return tensor.grad


@pytest.mark.parametrize("name", CASES)
def test_same_block(name: str) -> None:
    make, their_fields, fields = CASES[name]
    theirs = shaken(make(**their_fields))
    ours = FFNProbe(MoE(MoE.Config(n_experts=EXPERTS, hidden=HIDDEN, **fields), DIMS), DIMS)
    with torch.no_grad():
        for their, our in pairs(theirs, ours.part):
            our.copy_(their)
    found: list[tuple[Tensor, Tensor]] = []
    for block in (theirs, ours):
        x = tiny.floats(2, 16, DIM).requires_grad_()
        y = block(x)
        (y * tiny.floats(*y.shape, seed=9)).sum().backward()
        assert x.grad is not None
        found.append((y, x.grad))
    for their, our in zip(*found, strict=True):
        torch.testing.assert_close(our, their, atol=1e-4, rtol=1e-4)
    for their, our in zip(pairs(theirs, ours.part, of=grad), pairs(theirs, ours.part), strict=True):
        if our[1].requires_grad:
            torch.testing.assert_close(our[1].grad, their[0], atol=1e-4, rtol=1e-4)


def test_same_balance_loss() -> None:
    """Theirs counts each of the k choices as a whole token: k times the loss of one layer."""
    block: Any = shaken(mixtral())
    ours = FFNProbe(MoE(MoE.Config(balance_loss=1.0, hidden=HIDDEN), DIMS), DIMS)
    with torch.no_grad():
        ours.part.router.weight.copy_(block.gate.weight)
    x = tiny.floats(2, 16, DIM)
    logits = (block.gate(x)[0],)
    expected = load_balancing_loss_func(logits, EXPERTS, 2)
    from txlab.testing.contracts.experts import run

    torch.testing.assert_close(run(ours, x)[1].losses["balance"], expected / 2)
    valid = tiny.padded((16, 9), left=False)
    expected = load_balancing_loss_func(logits, EXPERTS, 2, valid.long())
    torch.testing.assert_close(run(ours, x, valid)[1].losses["balance"], expected / 2)


def test_same_mixtral() -> None:
    """A whole model: logits with and without padding, by cached decoding, and gradients."""
    config = transformers.MixtralConfig(
        **MIXTRAL,
        vocab_size=61,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        sliding_window=None,
        attn_implementation="eager",
    )
    theirs: Any = shaken(transformers.MixtralForCausalLM(config)).eval()
    ours: Any = tiny.model(
        tie_embeddings=False,
        attn=GQA.Config(n_kv_heads=2),
        norm=RMSNorm.Config(eps=config.rms_norm_eps),
        pos=RoPE.Config(theta=config.rope_parameters["rope_theta"]),
        ffn=MoE.Config(hidden=HIDDEN),
    )
    copy(theirs, ours)
    tokens = tiny.tokens(3, 12)
    expected = theirs(tokens).logits
    found = ours.logits(ours(tokens).states)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    with torch.no_grad():
        cache = ours.new_cache(3, 12)
        parts = [ours.logits(ours(t, cache=cache).states) for t in tokens.split((5, 1, 6), 1)]
        torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-4, rtol=0)
        valid = tiny.padded((12, 5, 9), left=True)
        places = (valid.cumsum(1) - 1).clamp(min=0)
        padded = theirs(tokens, attention_mask=valid.long(), position_ids=places).logits
        ours_padded = ours.logits(ours(tokens, valid=valid).states)
        torch.testing.assert_close(ours_padded[valid], padded[valid], atol=1e-4, rtol=0)
    for logits in (expected, found):
        (logits * tiny.floats(*logits.shape, seed=9)).sum().backward()
    for layer in range(2):
        there, here = theirs.model.layers[layer], ours.layers[layer]
        for their, our in (
            (there.self_attn.q_proj.weight, here.attn.q.weight),
            (there.mlp.gate.weight, here.ffn.router.weight),
            (there.mlp.experts.down_proj, here.ffn.experts.down.weight),
        ):
            torch.testing.assert_close(our.grad, their.grad, atol=1e-3, rtol=1e-4)


@torch.no_grad()
def copy(theirs: Any, ours: Decoder) -> None:
    table = [
        (theirs.model.embed_tokens, ours.embed),
        (theirs.lm_head, ours.head),
        (theirs.model.norm, ours.norm),
    ]
    for there, here in zip(theirs.model.layers, ours.layers, strict=True):
        layer: Any = here
        table += [(getattr(there.self_attn, f"{n}_proj"), getattr(layer.attn, n)) for n in "qkvo"]
        table.append((there.input_layernorm, layer.residual.norms["attn"]))
        table.append((there.post_attention_layernorm, layer.residual.norms["ffn"]))
        for their, our in pairs(there.mlp, layer.ffn):
            our.copy_(their)
    for there, here in table:
        here.weight.copy_(there.weight)
