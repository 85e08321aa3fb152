"""TIE-04: with zero gradients, rate 0.1 and decay 0.1, vectors stay and matrices shrink to 0.99."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed.strategies import NEEDS, PARTS
from txlab.models.decoder import Decoder
from txlab.nn.adapter import LoRA
from txlab.nn.ffn import MoE
from txlab.train.masters import Masters
from txlab.train.optim import optim

OPTIMIZERS = [name for name in optim.options if name != "adamw_8bit"]  # it needs a device
EXPERTS = {"ffn": MoE.Config(n_experts=4, bias=True, bias_rate=0.1)}
HEADS = {"qk_norm": True, "qkv_bias": True, "sink_logit": True}


def models() -> Iterator[tuple[str, nn.Module]]:
    """A model of every option; experts with biases, norms of queries, an adapter, a logit scale."""
    variants: dict[str, dict[str, Any]] = {"untied": {"tie_embeddings": False}, "experts": EXPERTS}
    variants["heads"] = {"attn": PARTS["attn"].options["gqa"].config(n_kv_heads=1, **HEADS)}
    for slot, kind in PARTS.items():
        for name, one in kind.options.items():
            needed = {s: n for s, n in NEEDS.get(name, {}).items() if isinstance(n, str)}
            chosen = {s: PARTS[s].options[n].config() for s, n in needed.items()}
            variants[f"{slot}={name}"] = {**chosen, slot: one.config()}
    for name, parts in variants.items():
        fields: dict[str, Any] = {"dim": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 11}
        config = Decoder.Config(**{**fields, "context": 8, **parts})
        yield name, Decoder(config, config.dims())
    config = Decoder.Config(dim=16, n_layers=1, n_heads=2, vocab_size=11, context=8)
    scaled = Decoder(config, config.dims())
    scaled.logit_scale = nn.Parameter(torch.tensor(2.6))
    yield "scale", scaled
    adapted = Decoder(config, config.dims())
    LoRA(LoRA.Config(r=2)).inject(adapted)
    for parameter in adapted.parameters():  # B starts at 0, of which 0.99 says nothing
        nn.init.normal_(parameter)
    yield "lora", adapted


def moved(
    model: nn.Module, name: str, masters: bool
) -> Iterator[tuple[str, float, torch.Tensor, torch.Tensor]]:
    """Every trained parameter by name: what it is to shrink by, what it is after and before."""
    optimizer = optim.build(optim.options[name].config(lr=0.1, weight_decay=0.1)).make(model)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    exact = trained
    if masters:
        of = Masters(model.parameters())
        of.adopt(optimizer)
        exact = {n: of.of(p) for n, p in trained.items()}
    listed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(listed) == sorted(map(id, exact.values()))
    before = {n: p.detach().clone() for n, p in exact.items()}
    for parameter in exact.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for n, p in exact.items():
        bias = n.endswith("bias")  # those of all experts together are a table of vectors
        yield n, 1.0 if bias or p.ndim < 2 else 0.99, p.detach(), before[n]


@pytest.mark.parametrize("masters", [False, True], ids=["own", "masters"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_only_matrices_decay_and_every_parameter_stands_once(name: str, masters: bool):
    seen = set()
    for label, model in models():
        seen.add(label)
        frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
        for n, factor, after, before in moved(model, name, masters):
            torch.testing.assert_close(
                after, before * factor, rtol=1e-6, atol=0, msg=f"{label}: {n}"
            )
        assert all(torch.equal(dict(model.named_parameters())[n], p) for n, p in frozen.items())
    assert {f"{slot}={n}" for slot, kind in PARTS.items() for n in kind.options} < seen
