"""Initialisations: every tensor is filled, the same way for the same seed."""

import torch
from torch import nn

from txlab.testing import tiny
from txlab.testing.assertions import expect, finite
from txlab.testing.harness import Subject, contract

INIT = "model.init"


def bodies() -> dict[str, nn.Module]:
    """Models that between them have every kind of tensor: biases, positions, tied heads or not."""
    from txlab.nn.attention import MHA
    from txlab.nn.ffn import MLP
    from txlab.nn.norm import LayerNorm
    from txlab.nn.position import Learned

    classic = {
        "attn": MHA.Config(qkv_bias=True, out_bias=True, qk_norm=True),
        "ffn": MLP.Config(bias=True),
        "norm": LayerNorm.Config(),
        "pos": Learned.Config(),
    }
    return {
        "modern, tied": tiny.model(),
        "modern, untied": tiny.model(tie_embeddings=False),
        "classic, tied": tiny.model(**classic),
        "classic, untied": tiny.model(tie_embeddings=False, **classic),
    }


@contract(INIT)
def fills_every_parameter(subject: Subject) -> None:
    """Applied to storage full of NaN, it leaves no number that is not finite."""
    for what, model in bodies().items():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float("nan"))
        with tiny.seeded(0):
            subject.build(tiny.DIMS).apply(model, empty=True)
        for name, parameter in model.named_parameters():
            finite(parameter, f"{what}: {name}")
            size = float(parameter.detach().abs().max())
            expect(size < 10, f"{what}: {name} starts at up to {size:.2g}")
            if parameter.ndim >= 2:
                expect(
                    float(parameter.detach().std()) > 1e-4, f"{what}: {name} starts without variety"
                )


@contract(INIT)
def follows_the_seed(subject: Subject) -> None:
    """Equal seeds give equal weights and other seeds others, whatever the weights were before."""
    weights = []
    for seed, before in ((0, 0), (0, 1), (1, 0)):
        model = tiny.model(seed=before)
        with tiny.seeded(seed):
            subject.build(tiny.DIMS).apply(model, empty=True)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    expect(torch.equal(weights[0], weights[1]), "the same seed gives other weights")
    expect(not torch.equal(weights[0], weights[2]), "another seed gives the same weights")


@contract(INIT)
def ties_stay_tied(subject: Subject) -> None:
    """A tied head is still the embedding afterwards, listed once."""
    model = tiny.model()
    built = subject.build(tiny.DIMS)
    built.apply(model)
    expect(model.head.weight is model.embed.weight, "the tied head is a tensor of its own")
    names = [name for name, _ in built.table(model)]
    wanted = {name for name, _ in model.named_parameters()}
    expect(
        sorted(names) == sorted(wanted), f"the table lists {sorted(set(names) ^ wanted)} wrongly"
    )


@contract(INIT)
def starts_near_uniform(subject: Subject) -> None:
    """A fresh model guesses about uniformly: its loss is within a quarter of log(vocabulary)."""
    from math import log

    for tie in (True, False):
        model = tiny.model(tie_embeddings=tie, init=subject.config(), start=True)
        ids = tiny.tokens(4, 16)
        with torch.no_grad():
            logits = model.logits(model(ids).states)
        loss = float(
            nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        )
        uniform = log(tiny.DIMS.vocab_size)
        expect(
            abs(loss - uniform) < 0.25 * uniform,
            f"tied={tie}: loss {loss:.2f}, uniform {uniform:.2f}",
        )
