"""`python -m txlab cost`: the tables, against models built for real."""

import re

import pytest
import torch

import txlab
from txlab.__main__ import dispatch
from txlab.core.errors import RequestError
from txlab.train.cost import activation_bytes, cache_bytes, fresh
from txlab.train.memory import Saved, optimizer_bytes, without_numbers
from txlab.train.optim import AdamW

TINY = ["model.dim=32", "model.n_layers=2", "model.n_heads=4", "model.context=32"]
SIZE = [*TINY, "model.vocab_size=64", "data.batch_size=2"]


def figure(text: str, name: str) -> float:
    found = re.search(rf"^ +{name} +([\d,.]+)", text, re.MULTILINE)
    assert found, text
    return float(found[1].replace(",", ""))


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    dispatch(["cost", *SIZE, "model.ffn=moe", "model.ffn.hidden=24", "model.attn=gqa"])
    text = capsys.readouterr().out
    config = txlab.compose([*SIZE, "model.ffn=moe", "model.ffn.hidden=24", "model.attn=gqa"])
    model = fresh(config)
    total = sum(p.numel() for p in model.parameters())
    experts = sum(p.numel() for n, p in model.named_parameters() if ".experts." in n)
    assert figure(text, "parameters") == total
    assert f"{total - experts * 6 // 8:,} of them met by a token" in text
    assert figure(text, "cache") == 2 * 2 * 1 * 8 * 4  # layers, k and v, one head of 8, float32
    assert re.search(r"attend \([\w ]+\) +2x4x32x8 2x1x32x8 2x1x32x8 +2x4x32x8", text)
    assert re.search(r"ffn\.experts\.gate +128x32 8 +128x24 +8x24x32", text)
    assert re.search(r"layers\.0 ffn moe +[\d,]+ +[\d,]+ +[\d,]+ +2$", text, re.MULTILINE)


def test_measured_parts_and_layers_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    dispatch(["cost", *SIZE, "measure=true", "trace=false", "model.pattern.ffn=[mlp,swiglu]"])
    text = capsys.readouterr().out
    assert "shapes through" not in text
    for name in (r"layers\.0\.ffn", r"layers\.1\.ffn", r"layers\.0\.attn", "whole step"):
        assert re.search(rf"^ +{name}[\w, ]* +[\d.]+ +[\d.]+ +[\d.]+ +\d$", text, re.MULTILINE)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_memory_is_what_a_real_step_keeps(precision: str) -> None:
    config = txlab.compose([*SIZE, f"train.precision={precision}", "model.backend=math"])
    with without_numbers():
        found, _ = activation_bytes(fresh(config).train(), config)
    model = fresh(config).train()
    ids = torch.zeros(2, 32, dtype=torch.long)
    low = precision == "bf16-mixed"
    with torch.autocast("cpu", torch.bfloat16, enabled=low), Saved(model) as saved:
        model(ids)
    assert found == saved.bytes > 0
    make = AdamW(AdamW.Config()).make
    state = optimizer_bytes(model, make)
    with without_numbers():
        assert optimizer_bytes(fresh(config), make) == state
    assert 2 * sum(p.nbytes for p in model.parameters()) <= state


def test_a_window_ends_to_grow() -> None:
    config = txlab.compose([*SIZE, "model.attn=mha"])
    per_token, whole = cache_bytes(fresh(config), 32, torch.bfloat16)
    assert per_token == 2 * 2 * 32 * 2
    assert whole == 32 * per_token


def test_the_vocabulary_is_the_tokenizers() -> None:
    from txlab.commands.cost import with_vocabulary

    config = with_vocabulary(txlab.compose([*TINY, "tokenizer.vocab_size=300"]))
    assert config.model.vocab_size == 300
    with pytest.raises(RequestError, match=r"set model\.vocab_size"):
        dispatch(["cost", *TINY, "tokenizer=pretrained", "tokenizer.path=/nowhere"])
