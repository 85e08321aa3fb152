"""Attention that leaves pairs out by a pattern of its own: global tokens, random blocks."""

from dataclasses import replace
from typing import Any

import torch

from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, same
from txlab.testing.contracts.attention import ATTENTION, influence, rotary
from txlab.testing.harness import Subject, contract

BLOCKS = {"block": 2, "n_random": 1, "n_window": 1, "n_global": 1}
"""The fewest blocks that leave something out of a short row and still draw one."""


def marks(subject: Subject) -> bool:
    """Whether the option has global tokens."""
    return subject.has("window", "n_globals")


def draws(subject: Subject) -> bool:
    """Whether the option draws blocks."""
    return subject.has("seed", *BLOCKS)


def tight(subject: Subject) -> dict[str, Any]:
    """Fields with which a short row is far from seeing all."""
    return dict(BLOCKS) if draws(subject) else {"window": 2, "n_globals": 2}


@contract(ATTENTION, when=marks)
def globals_see_and_are_seen(subject: Subject) -> None:
    """With window=2 a token sees its neighbour and the global ones; these see everything."""
    built, n = rotary(subject, window=2), 9
    special = torch.zeros(1, n, dtype=torch.bool)
    special[0, [2, 6]] = True
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() < 2
    for causal in (True, False):
        found = influence(built, n, Mask(n, n, causal=causal, globals_=special))
        wanted = near | special | special.T
        wanted = wanted.tril() if causal else wanted
        for i in range(n):
            one, other = (x[i].nonzero().flatten().tolist() for x in (found, wanted))
            kind = "global" if special[0, i] else "ordinary"
            order = "causal" if causal else "both ways"
            expect(one == other, f"{order}: {kind} row {i} sees keys {one}, expected {other}")


@contract(ATTENTION, when=lambda subject: marks(subject) or draws(subject))
@torch.no_grad()
def sparse_patterns_decode(subject: Subject) -> None:
    """What prefill leaves out, decoding leaves out: chunks of any size give the full pass."""
    model = tiny.model(attn=subject.config(**tight(subject)))
    tokens = tiny.tokens(2, 18)
    expected = model.logits(model(tokens).states)
    for sizes in ((1,) * 18, (18,), (11, 1, 1, 5), (3, 14, 1)):
        cache = model.new_cache(2, 20)
        parts = [model(part, cache=cache).states for part in tokens.split(sizes, dim=1)]
        same(model.logits(torch.cat(parts, 1)), expected, f"chunks of {sizes}", 2e-5)


@contract(ATTENTION, when=draws)
def draws_hold_as_rows_grow(subject: Subject) -> None:
    """Tokens see the same ones in a longer row; another seed draws others."""
    seen = influence(rotary(subject, **BLOCKS), 24)
    expect(not bool(seen.tril()[-1].all()), "the last of 24 tokens sees all: nothing is left out")
    for n in (13, 20):
        grown = influence(rotary(subject, **BLOCKS), n)
        lost = (grown != seen[:n, :n]).nonzero().tolist()
        expect(not lost, f"of {n} and of 24 tokens, row i sees others at (i, j) = {lost[:3]}")
    reseeded = replace(subject, fields=(*subject.fields, ("seed", 1)))
    other = influence(rotary(reseeded, **BLOCKS), 24)
    differ(other.float(), seen.float(), "who sees whom with another seed")
