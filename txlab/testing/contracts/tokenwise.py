"""Norms and feed-forward layers: what works on each token by itself."""

from dataclasses import replace

import torch

from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, same
from txlab.testing.contracts.network import backward
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import probe

TOKENWISE = ("model.norm", "model.ffn")


@contract(*TOKENWISE)
def position_wise(subject: Subject) -> None:
    """A token's output depends on that token alone, wherever it stands."""
    built = probe(subject)
    x = built.inputs()
    y = built(x)
    changed = x.clone()
    changed[:, 3] = built.inputs(seed=5)[:, 3]
    z = built(changed)
    others = [0, 1, 2, 4, 5, 6]
    same(z[:, others], y[:, others], "outputs of the tokens beside a changed one", 1e-6)
    differ(z[:, 3], y[:, 3], "output of the changed token")
    order = torch.tensor([4, 2, 6, 0, 3, 5, 1])
    same(built(x[:, order]), y[:, order], "output of the tokens in another order", 1e-6)
    same(built(x[:, 2:3]), y[:, 2:3], "output of a token alone", 1e-6)


@contract(*TOKENWISE)
def does_something(subject: Subject) -> None:
    """The output is neither the input, nor zero, nor the same for all tokens."""
    built = probe(subject)
    x = built.inputs()
    y = built(x)
    differ(y, x, "output against input", 1e-2)
    differ(y, torch.zeros_like(y), "output against zero", 1e-2)
    differ(y[:, 0], y[:, 1], "outputs of two tokens", 1e-2)


@contract(*TOKENWISE)
def not_linear(subject: Subject) -> None:
    """The output for 2x is not twice the output for x."""
    built = probe(subject)
    x = built.inputs()
    differ(built(2 * x) - built(torch.zeros_like(x)), 2 * (built(x) - built(torch.zeros_like(x))),
           "output for 2x against twice the output for x", 1e-2)  # fmt: skip


@contract(*TOKENWISE)
def finite_at_the_edges(subject: Subject) -> None:
    """Output and gradients are finite for tokens of zeros, tiny and large numbers."""
    built = probe(subject)
    for scale in (0.0, 1e-8, 1e3):
        x = built.inputs() * scale
        finite(backward(built, x), f"output for inputs of size {scale:g}")
        expect(x.grad is not None, "the input gets no gradient")
        assert x.grad is not None
        finite(x.grad, f"gradient of inputs of size {scale:g}")


@contract("model.norm")
def forgets_scale(subject: Subject) -> None:
    """A token times ten has the same output."""
    built = probe(subject)
    x = built.inputs()
    same(built(10 * x), built(x), "output for 10x", 1e-3)


@contract("model.norm")
def starts_at_unit_scale(subject: Subject) -> None:
    """As built, tokens of any size come out with a root mean square near 1."""
    built = probe(subject, shaken=False)
    for scale in (0.1, 1.0, 30.0):
        rms = built(built.inputs() * scale).detach().square().mean(-1).sqrt()
        low, high = float(rms.min()), float(rms.max())
        expect(
            0.8 < low <= high < 1.25, f"inputs of size {scale:g}: rms from {low:.2f} to {high:.2f}"
        )


@contract("model.norm")
def keeps_statistics_exact(subject: Subject) -> None:
    """In bfloat16 the output is the float32 one, rounded: statistics are not made in bfloat16."""
    built = probe(subject, replace(tiny.DIMS, dim=1024))
    x = built.inputs(2, 7).bfloat16()
    exact = built(x.float())
    rounded = built.bfloat16()(x).float()
    same(rounded, exact, "output in bfloat16", 2e-2)
