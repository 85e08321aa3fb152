"""`python -m txlab cost`: the tables, against models built for real."""

import re
import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import txlab
from txlab.__main__ import dispatch
from txlab.core.errors import RequestError
from txlab.nn.attention import CrossAttention
from txlab.testing import tiny
from txlab.train.cost import activation_bytes, cache_bytes, fresh, storage
from txlab.train.memory import Saved, optimizer_bytes, without_numbers
from txlab.train.optim import AdamW
from txlab.train.recompute import recompute_blocks

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
    figures = r" +[\d.]+ +[\d.]+ +[\d.]+ +(\d)$"
    for name, times in {
        "embed": 1,
        r"layers\.0, all of it": 1,
        r"layers\.1, all of it": 1,
        r"layers\.0\.ffn": 1,
        r"layers\.1\.ffn": 1,
        r"layers\.0\.attn": 2,
        "norm": 1,
        "head, loss": 1,
        "whole step, no update": 1,
    }.items():
        found = re.search(rf"^ +{name}{figures}", text, re.MULTILINE)
        assert found, (name, text)
        assert int(found[1]) == times, name


LLAMA = ["model.dim=4096", "model.n_layers=32", "model.n_heads=32", "model.tie_embeddings=false"]
PUBLISHED = {
    "GPT-2 124M": (
        "model.dim=768 model.n_layers=12 model.n_heads=12 model.vocab_size=50257 "
        "model.context=1024 model.attn=mha model.attn.qkv_bias=true model.attn.out_bias=true "
        "model.ffn=mlp model.ffn.bias=true model.norm=layernorm model.pos=learned",
        "124,439,808 124,439,808",
    ),
    "Llama-2 7B": (
        "model.attn=mha model.ffn.hidden=11008 model.vocab_size=32000",
        "6,738,415,616 6,738,415,616",
    ),
    "Llama-3 8B": (
        "model.attn.n_kv_heads=8 model.ffn.hidden=14336 model.vocab_size=128256",
        "8,030,261,248 8,030,261,248",
    ),
    "Mistral 7B": (
        "model.attn.n_kv_heads=8 model.ffn.hidden=14336 model.vocab_size=32000",
        "7,241,732,096 7,241,732,096",
    ),
    "Mixtral 8x7B": (
        "model.attn.n_kv_heads=8 model.ffn=moe model.ffn.hidden=14336 model.vocab_size=32000",
        "46,702,792,704 12,879,925,248",
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, sizes = PUBLISHED[name]
    given = words.split() if name.startswith("GPT") else [*LLAMA, *words.split()]
    dispatch(["cost", *given, "data.batch_size=1", "trace=false"])
    found = re.search(r"parameters +([\d,]+) +([\d,]+) of them met", capsys.readouterr().out)
    assert found
    assert " ".join(found.groups()) == sizes


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


SHARED = 3 * 32 * 8 * 4
"""Bytes of positions, sines and cosines of 32 tokens for a head of 8."""


class Alive(TorchDispatchMode):
    """Bytes of all storages that operators have made and nobody has let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._held: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage._cdata not in self._held:
                self._held.add(storage._cdata)
                self.bytes += storage.nbytes()
                weakref.finalize(storage, self._let_go, storage._cdata, storage.nbytes())
        return made

    def _let_go(self, key: int, size: int) -> None:
        self._held.discard(key)
        self.bytes -= size


@pytest.mark.parametrize("how", ["full", "2", "selective"])
@pytest.mark.parametrize("ffn", ["swiglu", "moe"])
def test_memory_saved_by_activation_checkpointing_is_what_a_real_step_saves(
    how: str, ffn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told, alive = {}, {}
    for kind in ("none", how):
        words = [*SIZE, f"model.ffn={ffn}", f"train.activation_checkpointing={kind}"]
        config = txlab.compose([*words, "data.batch_size=4"])
        with without_numbers():
            told[kind], _ = activation_bytes(fresh(config).train(), config)
        model = fresh(config).train()
        recompute_blocks(model, kind)
        with Alive() as found:
            states = model(torch.zeros(4, 32, dtype=torch.long)).states
        alive[kind] = found.bytes
        assert states.requires_grad
        dispatch(["cost", *words, "trace=false"])
        assert ("recomputed" in capsys.readouterr().out) == (kind != "none")
    less, really = told["none"] - told[how], alive["none"] - alive[how]
    # What all layers share (positions, rotary angles) lives on with a recomputation, uncounted.
    assert really <= less < really + SHARED


LAYER = 2 * 32 * 2
"""Bytes of one token's keys and values, 4 heads of 8 channels in bfloat16."""


@pytest.mark.parametrize(
    ("attn", "expected"),
    [
        (["model.attn=mha"], (2 * LAYER, 2 * LAYER * 32)),
        (["model.attn=mha", "model.attn.window=8"], (2 * LAYER, 2 * LAYER * 8)),
        # The sums that stand for the past: in float32, of no more bytes with more tokens.
        (["model.attn=linear"], (0, 2 * 4 * 8 * (8 + 1) * 4)),
        # A window of half the context, the 4 global tokens, and these as global queries see them.
        (["model.attn=longformer"], (2 * LAYER, 2 * LAYER * (16 + 4 + 4))),
    ],
)
def test_the_cache_of_a_row(attn: list[str], expected: tuple[int, int]) -> None:
    model = fresh(txlab.compose([*SIZE, *attn]))
    assert cache_bytes(model, 32, torch.bfloat16) == expected


def test_the_cache_of_a_memory() -> None:
    cross = CrossAttention(CrossAttention.Config(n_kv_heads=2), tiny.DIMS)
    assert cache_bytes(cross, 32, torch.bfloat16) == (0, LAYER * 32 // 2)
    kept = cross.new_cache(1, 32, torch.device("cpu"), torch.bfloat16)
    cross._memory(tiny.floats(1, 32, 32), kept)
    assert storage(kept) == LAYER * 32 // 2 * 2  # made in float32


def test_the_vocabulary_is_the_tokenizers() -> None:
    from txlab.commands.cost import with_vocabulary

    config = with_vocabulary(txlab.compose([*TINY, "tokenizer.vocab_size=300"]))
    assert config.model.vocab_size == 300
    with pytest.raises(RequestError, match=r"set model\.vocab_size"):
        dispatch(["cost", *TINY, "tokenizer=pretrained", "tokenizer.path=/nowhere"])
