"""Residual rules: the stream passes, every branch counts, and depth does no harm."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.norm import NoNorm, RMSNorm
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, gradients, same
from txlab.testing.contracts.network import backward, ends
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import probe

RESIDUAL = "model.residual"
DEPTH = 24


@contract(RESIDUAL)
def deep_stack_is_finite(subject: Subject) -> None:
    """As initialised, 24 layers have finite states of sane size and gradients in every tensor."""
    dims = Dims(dim=32, n_heads=4, head_dim=8, n_layers=DEPTH, context=16, vocab_size=61)
    model = tiny.model(dims, residual=subject.config(), start=True)
    model.train()
    embedded: list[Tensor] = []
    model.embed.register_forward_hook(lambda *call: embedded.append(call[2]))
    states = model(tiny.tokens(2, 12)).states
    finite(states, f"states after {DEPTH} layers")
    size = float(states.detach().square().mean().sqrt())
    expect(1e-2 < size < 1e2, f"states after {DEPTH} layers have a root mean square of {size:.2g}")
    embedded[0].retain_grad()
    ends(states).backward()
    slope = embedded[0].grad
    assert slope is not None
    finite(slope, "gradient of the embeddings")
    for name, parameter in model.named_parameters():
        expect(parameter.grad is not None, f"{name} gets no gradient")
        assert parameter.grad is not None
        finite(parameter.grad, f"gradient of {name}")
        expect(bool(parameter.grad.any()), f"the gradient of {name} vanishes")
    first, last = (_slope(model, layer) for layer in (0, DEPTH - 1))
    expect(
        1e-2 < first / last < 1e2,
        f"gradients of layer 0 are {first / last:.2g} times those of layer {DEPTH - 1}",
    )


def _slope(model: nn.Module, layer: int) -> float:
    """Norm of a layer's gradients."""
    found = (p.grad for p in model.get_submodule(f"layers.{layer}").parameters())
    return float(torch.stack([g.norm() for g in found if g is not None]).norm())


@contract(RESIDUAL)
def every_branch_counts(subject: Subject) -> None:
    """The output changes with the output of each branch, and is not one branch's alone."""
    built = probe(subject)
    x = built.inputs()
    y = built(x)
    for name in built.branches:
        kept = built.branches[name].weight.detach().clone()
        for factor in (0.0, -1.0):
            with torch.no_grad():
                built.branches[name].weight.copy_(kept * factor)
            differ(built(x), y, f"output with branch {name} times {factor:g}", 1e-3)
        with torch.no_grad():
            built.branches[name].weight.copy_(kept)


@contract(RESIDUAL)
def the_stream_passes(subject: Subject) -> None:
    """With silent branches each token still comes out pointing where it came in."""
    built = probe(subject, shaken=False)
    with torch.no_grad():
        for branch in built.branches.values():
            branch.weight.zero_()
        x = built.inputs()
        y = built(x)
    alike = torch.cosine_similarity(x, y, dim=-1).min()
    expect(
        float(alike) > 0.9, f"cosine of input and output is {float(alike):.2f}: the stream is lost"
    )


@contract(RESIDUAL)
def each_branch_runs_once(subject: Subject) -> None:
    """Each branch is called once a layer, in the order given."""
    built = probe(subject)
    calls: list[str] = []

    def branch(name: str) -> Any:
        return lambda x: calls.append(name) or built.branches[name](x)

    built.part(built.inputs(), {name: branch(name) for name in ("attn", "ffn")})
    expect(calls == ["attn", "ffn"], f"branches ran as {calls}")


@contract(RESIDUAL)
def serves_any_branches(subject: Subject) -> None:
    """A layer of three branches works as one of two does: no name is built in."""
    names = ("attn", "cross", "ffn")
    rule = subject.build(
        tiny.DIMS.at(0), branches=names, make_norm=lambda: RMSNorm(RMSNorm.Config(), tiny.DIMS)
    )
    x = tiny.floats(2, 5, tiny.DIMS.dim)
    linears = {name: tiny.floats(32, 32, seed=i) * 0.2 for i, name in enumerate(names)}
    y = rule(x, {name: lambda h, w=w: h @ w for name, w in linears.items()})
    for name in names:
        kept = {n: w * (n != name) for n, w in linears.items()}
        silent = rule(x, {n: lambda h, w=w: h @ w for n, w in kept.items()})
        differ(silent, y, f"output without branch {name}", 1e-3)


@contract(RESIDUAL)
def drops_in_training_only(subject: Subject) -> None:
    """The model's dropout acts on branches while training and never in evaluation."""
    dims = replace(tiny.DIMS, dropout=0.5)
    built = probe(subject, dims)
    x = built.inputs()
    y = built(x)
    built.train()
    with tiny.seeded(0):
        differ(built(x), y, "output in training against evaluation", 1e-3)


def bare(subject: Subject, layer: int, n_layers: int, **fields: Any) -> Tensor:
    """What a layer without norms, in training, adds to 4000 rows of zeros: a branch of ones tells
    how it was weighed [4000 3 1]."""
    dims = replace(tiny.DIMS, dim=1, n_layers=n_layers)
    rule = subject.build(
        dims.at(layer),
        config=subject.config(**fields),
        branches=("attn",),
        make_norm=lambda: NoNorm(NoNorm.Config(), dims),
    )
    with tiny.seeded(0), torch.no_grad():
        return rule.train()(torch.zeros(4000, 3, 1), {"attn": torch.ones_like})


@contract(RESIDUAL)
def scales_each_branch(subject: Subject) -> None:
    """With `layer_scale` each branch is multiplied by a vector that starts there and learns."""
    whole, quarter = bare(subject, 0, 2), bare(subject, 0, 2, layer_scale=0.25)
    same(quarter, whole / 4, "branch with layer_scale=0.25")
    built = probe(subject, layer_scale=0.25)
    backward(built, built.inputs())
    found = {name: g for name, g in gradients(built).items() if "scales" in name}
    expect(len(found) == 2, f"a layer of two branches has the vectors {sorted(found)}")
    for name, gradient in found.items():
        expect(bool(gradient.any()), f"the gradient of {name} is zero")


@contract(RESIDUAL)
def drops_whole_rows(subject: Subject) -> None:
    """With `drop_path` a row has a branch wholly or not at all; in evaluation all have all."""
    built = probe(subject, drop_path=0.5)
    same(built(built.inputs()), probe(subject)(built.inputs()), "output in evaluation", 0.0)
    kept = bare(subject, 1, 2, drop_path=0.5)
    expect(bool((kept == kept[:, :1]).all()), "part of a row skips a branch, and part does not")
    values = sorted(set(kept.flatten().tolist()))
    expect(len(values) == 2 and values[0] == 0, f"branches in training are weighed {values[:4]}")
    mean = float(kept.mean())
    expect(abs(mean - 1) < 0.1, f"drop_path moves the mean of a branch from 1 to {mean:.2f}")


@contract(RESIDUAL)
def drops_more_with_depth(subject: Subject) -> None:
    """Stochastic depth grows linearly: of n layers, layer i drops (i + 1) / n of `drop_path`."""
    for layer in (0, 1, 3):
        dropped = float((bare(subject, layer, 4, drop_path=0.8) == 0).float().mean())
        wanted = 0.2 * (layer + 1)
        expect(
            abs(dropped - wanted) < 0.04,
            f"layer {layer} of 4 drops {dropped:.2f} of the rows, expected {wanted:.2f}",
        )
