"""Counts against torch's counter on real models, and against published sizes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from txlab.core.slot import SLOTS
from txlab.models import Decoder
from txlab.models.flops import (
    decode_flops,
    mixing,
    parameters,
    train_flops,
    visible,
    weight_flops,
)
from txlab.nn.attention import GQA, MHA, Mixer
from txlab.nn.backend import Math
from txlab.nn.cache import LayerCache
from txlab.nn.ffn import MLP, MoE, SwiGLU
from txlab.nn.mask import Mask
from txlab.nn.norm import LayerNorm, RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.position import Learned
from txlab.testing import lent, tiny

LLAMA: dict[str, Any] = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "tie_embeddings": False,
    "attn": GQA.Config(n_kv_heads=8),
}
PUBLISHED: dict[str, tuple[dict[str, Any], int, int]] = {
    "GPT-2 124M": (
        {
            "dim": 768,
            "n_layers": 12,
            "n_heads": 12,
            "context": 1024,
            "vocab_size": 50_257,
            "attn": MHA.Config(qkv_bias=True, out_bias=True),
            "ffn": MLP.Config(bias=True),
            "norm": LayerNorm.Config(),
            "pos": Learned.Config(),
        },
        124_439_808,
        124_439_808,
    ),
    "Llama-2 7B": (
        {**LLAMA, "vocab_size": 32_000, "attn": MHA.Config(), "ffn": SwiGLU.Config(hidden=11_008)},
        6_738_415_616,
        6_738_415_616,
    ),
    "Llama-3 8B": (
        {**LLAMA, "vocab_size": 128_256, "ffn": SwiGLU.Config(hidden=14_336)},
        8_030_261_248,
        8_030_261_248,
    ),
    "Mistral 7B": (
        {**LLAMA, "vocab_size": 32_000, "ffn": SwiGLU.Config(hidden=14_336)},
        7_241_732_096,
        7_241_732_096,
    ),
    "Mixtral 8x7B": (
        {**LLAMA, "vocab_size": 32_000, "ffn": MoE.Config(hidden=14_336)},
        46_702_792_704,
        12_879_925_248,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    fields, total, active = PUBLISHED[name]
    config = Decoder.Config(**fields)
    with torch.device("meta"):
        assert parameters(Decoder(config, config.dims())) == (total, active)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tie_embeddings": False, "pos": Learned.Config()},
        {"attn": GQA.Config(n_kv_heads=1, qk_norm=True)},
        {"ffn": MoE.Config(n_experts=4, top_k=2, n_shared=1, hidden=24)},
        {"pattern": Pattern(ffn=["mlp", "moe"], attn=["mha", "gqa"])},
        {"pattern": Pattern(attn=[{"name": "gqa", "window": 8}, "mha"])},
    ],
)
def test_counts_are_those_of_torchs_counter(fields: dict[str, Any]) -> None:
    """Not halved for causality: the `math` backend computes full products."""
    model = tiny.model(backend=Math.Config(), **fields).train()
    ids = tiny.tokens(2, 32)
    with FlopCounterMode(display=False) as counter:
        model.logits(model(ids).states).sum().backward()
    expected = train_flops(model, 32, causal=False) * ids.numel()
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-9)
    cache = model.new_cache(1, 24)
    with torch.no_grad():
        model(ids[:1, :23], cache=cache)
        with FlopCounterMode(display=False) as counter:
            model.logits(model(ids[:1, 23:24], cache=cache).states)
    assert counter.get_total_flops() == pytest.approx(decode_flops(model, 24), rel=1e-9)


@pytest.mark.parametrize("name", sorted(SLOTS["model.attn"].options))
def test_every_mixer_is_counted(name: str) -> None:
    """On its own, a token's work beside its weights is above 0, and causal at most all of it."""
    model = tiny.model(attn=SLOTS["model.attn"].option(name).config())
    whole, seen = (mixing(model, 32, causal=causal) for causal in (False, True))
    assert len(seen) == model.dims.n_layers
    assert all(0 < a <= b for a, b in zip(seen, whole, strict=True))
    assert decode_flops(model, 32) > weight_flops(model)


def test_a_frozen_weight_counts_twice() -> None:
    model = tiny.model()
    before = train_flops(model, 32)
    model.layers[0].ffn.requires_grad_(False)
    frozen = sum(p.numel() for p in model.layers[0].ffn.parameters())
    assert before - train_flops(model, 32) == 2 * frozen


def test_visible_share_by_counting() -> None:
    for n in (8, 100, 700):
        assert visible(Mask(n, n)) == pytest.approx((n + 1) / (2 * n), rel=0.01)
        assert visible(Mask(n, n, window=5)) == pytest.approx((5 * n - 10) / n**2, rel=0.05)
    assert visible(Mask(64, 64, causal=False)) == 1


def test_a_strangers_mixer_is_counted_or_says_it_itself() -> None:
    class Means(Mixer):
        """The mean of a fixed matrix product."""

        def __init__(self, config: Any, dims: Any) -> None:
            super().__init__(config, dims)
            self.table = torch.nn.Parameter(torch.zeros(dims.dim, dims.dim))

        def forward(self, x: Any, ctx: Any, cache: Any = None) -> Any:
            return x @ self.table

        def new_cache(self, batch: int, length: int, device: Any, dtype: Any) -> Any:
            return LayerCache()

    class Told(Means):
        """Says what it costs."""

        def flops(self, context: int, *, decoding: bool = False) -> float:
            return 7.0 if decoding else 5.0

    for cls, expected in ((Means, 2.0 * 32 * 32), (Told, 5.0)):
        cls.attends = False
        with lent(cls) as subject:
            model = tiny.model(replace(tiny.DIMS, n_layers=1), attn=subject.config())
            assert mixing(model, 16) == [expected]
            mine = {Means: 2.0 * 32 * 32, Told: 7.0}[cls]
            assert decode_flops(model, 16) == weight_flops(model) + mine


def test_norms_have_no_products() -> None:
    assert weight_flops(tiny.model(norm=RMSNorm.Config())) == weight_flops(
        tiny.model(norm=LayerNorm.Config())
    )
