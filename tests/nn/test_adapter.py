"""LoRA through peft: what is adapted, what trains, merging, turning it off."""

import copy
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from txlab.core.errors import RequestError
from txlab.nn.adapter import LoRA, adapter_of
from txlab.nn.adapter.injected import layers
from txlab.nn.adapter.targets import pick
from txlab.nn.pattern import Pattern
from txlab.testing import tiny
from txlab.train.optim import AdamW
from txlab.train.weights import named_tensors

IDS = tiny.tokens(2, 9)


def logits(model, *, graph=False):
    with torch.set_grad_enabled(graph):
        return model.logits(model(IDS).states)


def adapted(dtype=torch.float32, *, trained=True, **fields):
    """A model with LoRA in it, its matrices away from their start."""
    model = tiny.model().to(dtype)
    LoRA(LoRA.Config(**fields)).inject(model)
    if trained:
        for i, (name, p) in enumerate(model.named_parameters()):
            if "lora_" in name:
                p.data.copy_(0.1 * tiny.floats(*p.shape, seed=i))
    return model


def adapter(model):
    found = adapter_of(model)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (["attention"], {f"layers.{i}.attn.{p}" for i in (0, 1) for p in "qkvo"}),
        (["ffn"], {f"layers.{i}.ffn.{p}" for i in (0, 1) for p in ("gate", "up", "down")}),
        (["q", "v"], {f"layers.{i}.attn.{p}" for i in (0, 1) for p in "qv"}),
        (["layers.*.attn.q"], {"layers.0.attn.q", "layers.1.attn.q"}),
        (["layers.1.*"], {f"layers.1.attn.{p}" for p in "qkvo"}
         | {f"layers.1.ffn.{p}" for p in ("gate", "up", "down")}),
        (["layers.0.attn.o", "up"], {"layers.0.attn.o", "layers.0.ffn.up", "layers.1.ffn.up"}),
    ],
)  # fmt: skip
def test_targets(targets, names):
    model = tiny.model(tie_embeddings=False)
    assert set(pick(model, targets)) == names
    LoRA(LoRA.Config(targets=targets)).inject(model)
    assert set(layers(model)) == names


def test_all_is_every_linear_inside_the_layers_and_no_head():
    for tied in (True, False):
        found = pick(tiny.model(tie_embeddings=tied), ["all"])
        assert len(found) == 14
        assert all(name.startswith("layers.") for name in found)
        assert pick(tiny.model(tie_embeddings=tied), ["*"]) == found


def test_a_target_in_only_some_layers_is_fine():
    model = tiny.model(pattern=Pattern(ffn=["mlp", "swiglu"]))
    assert pick(model, ["gate"]) == ["layers.1.ffn.gate"]


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (["q", "qq"], r"qq matches no linear of this model\. Did you mean q\?"),
        (["atention"], r"Did you mean attention"),
        (["q", "layers.*.atn.q"], r"layers\.\*\.atn\.q matches no linear.*layers\.0\.attn\.q"),
        (["embed"], "embed matches no linear"),
        (["head"], "head is the output head"),
    ],
)
def test_unmatched_targets_are_refused_by_name(targets, says):
    """LORA-01, and nothing in the model has changed."""
    model = tiny.model()
    with pytest.raises(RequestError, match=says):
        LoRA(LoRA.Config(targets=targets)).inject(model)
    assert all(p.requires_grad for p in model.parameters())
    assert adapter_of(model) is None


def test_no_targets_are_refused():
    with pytest.raises(RequestError, match="targets"):
        LoRA.Config(targets=[])


def test_identity_at_start_and_the_count_that_trains():
    model = adapted(trained=False, r=4, targets=["q", "down"])
    assert torch.equal(logits(model), logits(tiny.model()))
    dim, wide, hidden = 32, 32, model.layers[0].ffn.down.base_layer.in_features
    expected = 2 * (4 * (dim + wide) + 4 * (hidden + dim))
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == expected
    said = adapter(model).describe(model)
    assert "4 linears (q 2, down 2)" in said
    assert f"{expected:,} of" in said


def test_only_the_adapter_trains_and_its_matrices_decay():
    model = adapted()
    optimizer = AdamW(AdamW.Config(weight_decay=0.1)).make(model)
    (group,) = optimizer.param_groups
    assert group["weight_decay"] == 0.1
    assert len(group["params"]) == 28
    assert all("lora_" in name for name in group["param_names"])
    before = {k: v.detach().clone() for k, v in named_tensors(model).items()}
    logits(model, graph=True).square().sum().backward()
    optimizer.step()
    assert all(torch.equal(v, before[k]) for k, v in named_tensors(model).items())


def test_names_of_the_base_are_those_without_adapter():
    plain, model = tiny.model(), adapted()
    assert list(named_tensors(model)) == list(named_tensors(plain))
    own = adapter(model).tensors(model)
    assert "layers.0.attn.q.lora_A.weight" in own
    assert len(own) == 28


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ten_merges_leave_every_bit_of_the_base(dtype):
    """LORA-02: r=8, alpha=16, dropout 0.1."""
    model = adapted(dtype, r=8, alpha=16, dropout=0.1)
    base = {k: v.detach().clone() for k, v in named_tensors(model).items()}
    before, scale = logits(model), float(logits(model).abs().max())
    for _ in range(10):
        adapter(model).merge(model)
        adapter(model).merge(model)
        merged = logits(model)
        adapter(model).unmerge(model)
    assert all(torch.equal(v, base[k]) for k, v in named_tensors(model).items())
    assert torch.equal(logits(model), before)
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    assert float((merged - before).abs().max()) < tolerance * max(scale, 1)


def test_off_is_the_base_exactly_merged_or_not():
    model, expected = adapted(), logits(tiny.model())
    on = logits(model)
    assert not torch.allclose(on, expected)
    for merge in (False, True):
        if merge:
            adapter(model).merge(model)
        with adapter(model).off(model):
            assert torch.equal(logits(model), expected)
            with adapter(model).off(model):
                pass
            assert torch.equal(logits(model), expected)
        assert torch.allclose(logits(model), on, atol=1e-4)
    trains = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trains)
    assert len(trains) == 28


def test_baked_is_a_plain_model():
    model = adapted()
    expected = logits(model)
    adapter(model).bake(model)
    assert adapter_of(model) is None
    assert list(model.state_dict()) == list(tiny.model().state_dict())
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)
    assert all(p.requires_grad for p in model.parameters())
    assert model.head.weight is model.embed.weight
    LoRA(LoRA.Config()).inject(model)  # and takes another adapter


def test_dropout_is_off_in_eval_mode_from_the_start():
    model = adapted(dropout=0.5)
    assert torch.equal(logits(model), logits(model))
    model.train()
    assert not torch.equal(logits(model), logits(model))


def test_recomputed_activations_leave_the_gradients_as_they_are():
    """LORA-04: the embedding is frozen, so what goes into a recomputed block has no gradient."""
    kept = adapted(trained=False)
    recomputed = copy.deepcopy(kept)
    for block in recomputed.layers:
        forward = block.forward
        block.forward = partial(checkpoint, forward, use_reentrant=False)
    for model in (kept, recomputed):
        logits(model, graph=True).square().mean().backward()
    found = dict(recomputed.named_parameters())
    for name, parameter in kept.named_parameters():
        assert (parameter.grad is not None) == ("lora_" in name)
        if parameter.grad is None:
            assert found[name].grad is None
            continue
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=0, atol=1e-6)
        assert bool(parameter.grad.any()) == ("lora_B" in name)  # B is zero at the start


def test_a_copy_is_independent():
    model = adapted()
    other = copy.deepcopy(model)
    with adapter(other).off(other):
        assert not torch.allclose(logits(model), logits(other))
    adapter(other).bake(other)
    assert adapter_of(model) is not None


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
def test_compiled_blocks_with_and_without_it():
    model = adapted()
    on = logits(model)
    with adapter(model).off(model):
        off = logits(model)
    for block in model.layers:
        block.compile(backend="aot_eager")
    torch.testing.assert_close(logits(model), on)
    with adapter(model).off(model):
        torch.testing.assert_close(logits(model), off)
    logits(model, graph=True).square().mean().backward()
    assert all((p.grad is not None) == ("lora_" in n) for n, p in model.named_parameters())
