"""LoRA on stacked experts: one update for each expert, and everything else as on any linear."""

from typing import Any

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.nn.adapter import LoRA
from txlab.nn.ffn import MoE
from txlab.testing import tiny

IDS = tiny.tokens(2, 9)
FFN = MoE.Config(n_experts=4, hidden=24, n_shared=1)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.logits(model(IDS).states)


def adapted(**fields: Any) -> tuple[Any, Any]:
    model, lora = tiny.model(ffn=FFN), LoRA(LoRA.Config(**{"targets": ["ffn"], "r": 2, **fields}))
    with tiny.seeded(0):
        lora.inject(model)
    return lora, model


def test_experts_have_an_update_each() -> None:
    plain = logits(tiny.model(ffn=FFN))
    lora, model = adapted()
    assert torch.equal(logits(model), plain)
    own = lora.tensors(model)
    assert own["layers.0.ffn.experts.gate.lora_A.weight"].shape == (4 * 2, 32)
    assert own["layers.1.ffn.shared.down.lora_B.weight"].shape == (32, 2)
    assert not any("router" in name for name in own)
    for i, tensor in enumerate(own.values()):
        tensor.data.add_(0.1 * tiny.floats(*tensor.shape, seed=i))
    changed = logits(model)
    assert (changed - plain).abs().max() > 1e-2
    with lora.off(model):
        assert torch.equal(logits(model), plain)
    lora.merge(model)
    torch.testing.assert_close(logits(model), changed, atol=1e-4, rtol=1e-4)
    lora.unmerge(model)
    assert torch.equal(logits(model), changed)
    lora.bake(model)
    assert list(model.state_dict()) == list(tiny.model(ffn=FFN).state_dict())
    torch.testing.assert_close(logits(model), changed, atol=1e-4, rtol=1e-4)


def test_only_the_adapter_trains() -> None:
    lora, model = adapted(targets=["gate"])
    model.logits(model(IDS).states).square().mean().backward()
    having = [name for name, p in model.named_parameters() if p.grad is not None]
    assert having
    assert all("lora_" in name for name in having)
    assert len(lora.tensors(model)) == 2 * 2 * 2  # two layers, experts and shared, A and B


def test_dropout_in_experts_is_refused() -> None:
    with pytest.raises(RequestError, match=r"adapter\.dropout=0\.1 .* layers\.0\.ffn\.experts"):
        adapted(dropout=0.1)
    adapted(dropout=0.1, targets=["attention"])
