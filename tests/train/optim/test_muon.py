"""Muon against torch's own class, against an exact orthogonalisation, and expert by expert."""

import pytest
import torch
from torch import nn

from txlab.core.errors import RequestError
from txlab.nn.adapter import LoRA
from txlab.nn.ffn import MoE
from txlab.testing import tiny
from txlab.train.optim import AdamW, Muon
from txlab.train.optim.orthogonal import orthogonalised


def gradients(model, seed):
    for i, parameter in enumerate(model.parameters()):
        if parameter.requires_grad:
            parameter.grad = tiny.floats(*parameter.shape, seed=100 * seed + i)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_is_that_of_pytorch_beside_adamw(adjust, nesterov):
    """Four updates; to the rounding of bfloat16, in which both multiply."""
    fields = {"lr": 0.02, "weight_decay": 0.1}
    ours, theirs = tiny.model(), tiny.model()
    config = Muon.Config(adjust=adjust, nesterov=nesterov, adamw_lr=0.01, **fields)
    optimizer = Muon(config).make(ours)
    matrices, rest = {}, {}
    for name, p in theirs.named_parameters():
        (matrices if name.startswith("layers") and p.ndim == 2 else rest)[name] = p
    peers = [
        torch.optim.Muon(matrices.values(), adjust_lr_fn=adjust, nesterov=nesterov, **fields),
        torch.optim.AdamW(
            [{"params": [p], "weight_decay": 0.1 if p.ndim > 1 else 0.0} for p in rest.values()],
            lr=0.01,
            betas=(0.9, 0.95),
            fused=True,
        ),
    ]
    for step in range(4):
        before = {name: p.detach().clone() for name, p in theirs.named_parameters()}
        gradients(ours, step)
        gradients(theirs, step)
        optimizer.step()
        for peer in peers:
            peer.step()
        for name, p in ours.named_parameters():
            wanted = theirs.get_parameter(name).detach()
            if name in rest:
                assert torch.equal(p, wanted), name
            else:
                apart = float((p.detach() - wanted).norm() / (wanted - before[name]).norm())
                assert apart < 0.02 * (step + 1), (name, apart)
    assert len(matrices) == 14


@pytest.mark.parametrize("shape", [(32, 32), (48, 16), (16, 48), (3, 24, 16)])
def test_singular_values_come_near_one(shape):
    """U V^T of the SVD, up to singular values of 0.7 to 1.2, which the quintic leaves."""
    matrices = tiny.floats(*shape)
    found = orthogonalised(matrices, 5).float()
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.25
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    cosine = nn.functional.cosine_similarity(found.flatten(-2), (u @ v).flatten(-2), dim=-1)
    assert cosine.min() > 0.97
    assert not orthogonalised(torch.zeros(4, 3), 5).any()


def test_each_expert_moves_as_it_would_alone():
    model = tiny.model(ffn=MoE.Config(n_experts=3))
    optimizer = Muon(Muon.Config(lr=0.1, weight_decay=0.0)).make(model)
    stack = model.get_parameter("layers.0.ffn.experts.up.weight")
    before = stack.detach().clone()
    gradients(model, 0)
    optimizer.step()
    for i, (old, gradient) in enumerate(zip(before, stack.grad, strict=True)):
        alone = nn.Linear(old.shape[1], old.shape[0], bias=False)
        alone.weight.data.copy_(old)
        alone.weight.grad = gradient.clone()
        torch.optim.Muon(
            alone.parameters(), lr=0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
        ).step()
        moved = (stack[i] - alone.weight).norm() / (alone.weight - old).norm()
        assert moved < 0.02, i


def test_who_follows_which_rule():
    model = tiny.model(ffn=MoE.Config(n_experts=3), tie_embeddings=False)
    named = {
        name: group["muon"]
        for group in Muon(Muon.Config()).make(model).param_groups
        for name in group["param_names"]
    }
    muon = {name.partition(".")[2].partition(".")[2] for name, by_muon in named.items() if by_muon}
    linears = [f"attn.{x}" for x in "qkvo"] + [f"ffn.experts.{x}" for x in ("gate", "up", "down")]
    assert muon == {f"{linear}.weight" for linear in linears}


def test_adapters_are_matrices_too_and_without_any_matrix_it_is_refused():
    model = tiny.model()
    LoRA(LoRA.Config()).inject(model)
    assert all(group["muon"] for group in Muon(Muon.Config()).make(model).param_groups)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name == "embed.weight")
    AdamW(AdamW.Config()).make(model)
    with pytest.raises(RequestError, match="optim=muon: no matrix"):
        Muon(Muon.Config()).make(model)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"momentum": 1.0}, "momentum"),
        ({"ns_steps": 0}, "ns_steps"),
        ({"adamw_lr": 0.0}, "adamw_lr"),
        ({"adjust": "rms"}, "expected one of match_rms_adamw, original"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(RequestError, match=message):
        Muon.Config(**fields)
