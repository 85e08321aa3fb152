"""Counts against torch's counter on real models, and against sums made by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from txlab.core.slot import SLOTS
from txlab.models.flops import (
    decode_flops,
    mixing,
    parameters,
    train_flops,
    visible,
    weight_flops,
)
from txlab.nn.attention import GQA, MHA, CrossAttention, Longformer, Mixer
from txlab.nn.backend import Math
from txlab.nn.cache import LayerCache
from txlab.nn.ffn import MLP, MoE
from txlab.nn.mask import Mask
from txlab.nn.norm import LayerNorm, RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.position import Learned, NoPosition, RoPE
from txlab.nn.residual import Pre
from txlab.nn.stack import LayerPlan, Stack
from txlab.testing import lent, tiny

ATTN, FFN = (sorted(SLOTS[f"model.{slot}"].options) for slot in ("attn", "ffn"))


def counted(model: Any, n: int) -> tuple[float, float]:
    """(FLOPs a token of a training step, FLOPs of the n-th token) by torch's counter."""
    ids = tiny.tokens(2, n)
    with FlopCounterMode(display=False) as training:
        model.train().logits(model(ids).states).sum().backward()
    cache = model.new_cache(1, n)
    with torch.no_grad():
        model(ids[:1, : n - 1], cache=cache)
        with FlopCounterMode(display=False) as decoding:
            model.logits(model(ids[:1, n - 1 :], cache=cache).states)
    return training.get_total_flops() / ids.numel(), decoding.get_total_flops()


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
    model = tiny.model(backend=Math.Config(), **fields)
    training, decoding = counted(model, 32)
    assert training == pytest.approx(train_flops(model, 32, causal=False), rel=1e-9)
    assert decoding == pytest.approx(decode_flops(model, 32), rel=1e-9)


# torch's counter knows no kernel but that of `math`, which `flash` refuses; it is a gqa.
COUNTED = [*(f"attn={n}" for n in ATTN if n != "flash"), *(f"ffn={n}" for n in FFN)]


@pytest.mark.parametrize("option", COUNTED)
@pytest.mark.parametrize("scheme", [RoPE, NoPosition])
def test_every_option_costs_what_torch_counts(option: str, scheme: Any) -> None:
    slot, _, name = option.partition("=")
    parts = {slot: SLOTS[f"model.{slot}"].option(name).config(), "pos": scheme.Config()}
    if name != "linear":
        parts["backend"] = Math.Config()
    model = tiny.model(**parts)
    training, decoding = counted(model, 32)
    assert training == pytest.approx(train_flops(model, 32, causal=False), rel=0.01)
    assert decoding == pytest.approx(decode_flops(model, 32), rel=0.01)


def test_flash_costs_what_gqa_does() -> None:
    flash, gqa = (tiny.model(attn=SLOTS["model.attn"].option(n).config()) for n in ("flash", "gqa"))
    assert train_flops(flash, 32) == train_flops(gqa, 32)
    assert decode_flops(flash, 32) == decode_flops(gqa, 32)


def test_longformer_by_hand() -> None:
    """128 tokens, window 64, 4 global ones, 4 heads of 16 channels, no other weights counted.

    Pairs: 1 + ... + 64 in the first half; then 64 in the window, and 1, 2, 3, 4, 4 ... global ones
    before it; and the global tokens once more among themselves, 1 + 2 + 3 + 4.
    """
    pairs = 64 * 65 // 2 + 64 * 64 + (1 + 2 + 3 + 61 * 4) + 10
    dims = replace(tiny.DIMS, dim=64, head_dim=16, n_layers=1, context=128)
    model = tiny.model(dims, attn=Longformer.Config())
    found = parameters(model.layers[0].attn)
    assert found == (7 * 64 * 64, 4 * 64 * 64 + 3 * 64 * 64 * 4 // 128)
    assert mixing(model, 128) == [pytest.approx(pairs * 4 * 64 / 128, rel=0.001)]
    last = 4 * 64 * 64 + 2 * 64 * (64 + 4)  # all four projections; scores and sums over 68 keys
    rest = weight_flops(model) - weight_flops(model.layers[0].attn)
    assert decode_flops(model, 128) - rest == 2 * last


@pytest.mark.parametrize("name", ATTN)
def test_every_mixer_is_counted(name: str) -> None:
    """On its own, a token's work beside its weights is above 0, and causal at most all of it."""
    model = tiny.model(attn=SLOTS["model.attn"].option(name).config())
    whole, seen = (mixing(model, 32, causal=causal) for causal in (False, True))
    assert len(seen) == model.dims.n_layers
    assert all(0 < a <= b for a, b in zip(seen, whole, strict=True))
    assert decode_flops(model, 32) > weight_flops(model)


def test_cross_attention_to_a_memory_as_long_as_the_text() -> None:
    """Its keys and values are made with the first token, so the last one is spared them."""
    config = CrossAttention.Config(n_kv_heads=2)
    plan = LayerPlan(MHA.Config(), MLP.Config(), RoPE(RoPE.Config(), tiny.DIMS), cross=config)
    parts: dict[str, Any] = {"norm_config": RMSNorm.Config(), "residual_config": Pre.Config()}
    stack = Stack([plan, plan], tiny.DIMS, backend=Math(Math.Config(), tiny.DIMS), **parts)
    tiny.shake(stack)
    model: Any = SimpleNamespace(dims=tiny.DIMS, modules=stack.modules, parameters=stack.parameters)
    x, memory = tiny.floats(1, 16, 32), tiny.floats(1, 16, 32, seed=2).requires_grad_()
    places = torch.arange(16)[None]
    with FlopCounterMode(display=False) as counter:
        stack(x, Mask(16, 16), places, memory=memory)[0].sum().backward()
    assert counter.get_total_flops() == 16 * train_flops(model, 16, causal=False)
    cache = stack.new_cache(1, 16, x.device, x.dtype)
    with torch.no_grad():
        for some in (slice(0, 15), slice(15, 16)):
            mask, at = cache.place(1, len(places[0, some]), None, x.device)
            with FlopCounterMode(display=False) as counter:
                stack(x[:, some], mask, at, cache, memory=memory)
    assert counter.get_total_flops() == decode_flops(model, 16)


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
