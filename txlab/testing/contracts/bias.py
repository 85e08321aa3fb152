"""Positional schemes at work inside attention: rotations and biases arrive, in every backend."""

from typing import Any

import torch

from txlab.nn.backend import Auto, backend
from txlab.nn.mask import Mask
from txlab.nn.position import ALiBi, NoPosition, Position, RoPE
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, gradients, same, same_gradients
from txlab.testing.contracts.network import ends
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import MixerProbe, attention_around, probe


def scores(subject: Subject) -> bool:
    """Whether the scheme adds a bias to attention scores."""
    return subject.option.cls.scores


def around(subject: Subject, name: str) -> MixerProbe | None:
    """Multi-head attention with the scheme on this backend; None where it takes no score."""
    built = attention_around(probe(subject).part, tiny.DIMS)
    option = backend.options[name]
    if "score" not in option.cls.supports:
        return None
    built.backend = backend.build(option.config(), tiny.DIMS).pick(frozenset({"score"}))
    return built


def frames() -> dict[str, dict[str, Any]]:
    """Masks, with the positions they imply: plain, left padding, packed documents, a window."""
    valid = tiny.padded((9, 4), left=True)
    documents = (torch.arange(9) > 3).long().expand(2, -1)
    return {
        "causal": {"mask": Mask(9, 9)},
        "both ways": {"mask": Mask(9, 9, causal=False)},
        "padding": {"mask": Mask(9, 9, valid=valid)},
        "documents": {"mask": Mask(9, 9, documents=documents)},
        "window": {"mask": Mask(9, 9, window=3)},
    }


@contract("model.pos", when=scores)
def biases_every_backend(subject: Subject) -> None:
    """The bias changes the output, by equal values and gradients in every backend that has them."""
    reference = around(subject, "math")
    assert reference is not None
    x = reference.inputs(2, 9)
    plain = attention_around(NoPosition(NoPosition.Config(), tiny.DIMS), tiny.DIMS)
    differ(reference(x), plain(x), "output with the bias against that without", 1e-3)
    for name in backend.options:
        built = around(subject, name)
        for what in frames() if built is not None and name != "math" else ():
            assert built is not None
            learns = built.backend.trains(x.device)
            found = []
            for each in (reference, built):
                each.zero_grad()
                with torch.set_grad_enabled(learns):
                    y = each(x, **frames()[what])
                if learns:
                    ends(y).backward()
                found.append((y.detach(), gradients(each)))
            same(found[1][0], found[0][0], f"{name}, {what}")
            same_gradients(found[1][1], found[0][1], f"{name}, {what}", 2e-5)


@contract("model.pos", when=scores)
def biases_by_distance_in_tokens(subject: Subject) -> None:
    """A row behind or among pads, a document behind another: outputs are those it has alone."""
    built = around(subject, "math")
    assert built is not None
    x = built.inputs(1, 9)
    alone = built(x[:, 4:])
    padded = built(x, mask=Mask(9, 9, valid=(torch.arange(9) > 3)[None]))
    same(padded[:, 4:], alone, "row behind pads")
    packed = built(x, mask=Mask(9, 9, documents=(torch.arange(9) > 3).long()[None]))
    same(packed[:, 4:], alone, "second document of a packed row")
    at = torch.tensor([0, 2, 3, 6, 8])
    valid = torch.zeros(1, 9, dtype=torch.bool).index_fill(1, at, True)
    spread = built(x, mask=Mask(9, 9, valid=valid))
    same(spread[:, at], built(x[:, at]), "row with pads between its tokens")


@contract("model.pos", when=scores)
def biases_accumulate(subject: Subject) -> None:
    """Backward over two micro-batches gives the sum of their gradients, in every backend."""
    for name in backend.options:
        built = around(subject, name)
        if built is None or not built.backend.trains(torch.device("cpu")):
            continue
        found = []
        for rows in ([0], [1], [0, 1]):
            built.zero_grad()
            for row in rows:
                ends(built(built.inputs(2, 7, seed=row), mask=Mask(7, 7))).backward()
            found.append(gradients(built))
        total = {key: found[0][key] + found[1][key] for key in found[0]}
        same_gradients(found[2], total, f"{name}: two micro-batches", 1e-5)
        for key, gradient in found[2].items():
            expect(bool(gradient.any()), f"{name}: the gradient of {key} is zero")


@contract("model.attn")
def positions_act(subject: Subject) -> None:
    """Rotation and score bias each change the output, unless the mixer refuses such schemes."""
    built = probe(subject)
    x = built.inputs(2, 9)
    plain = built(x)
    schemes: tuple[Position, ...] = (
        RoPE(RoPE.Config(), built.dims),
        ALiBi(ALiBi.Config(), built.dims),
    )
    for scheme in schemes:
        if built.part.refuse(scheme, Auto(Auto.Config(), built.dims)) is None:
            built.position = scheme
            differ(built(x), plain, f"output with {scheme.name} against that without", 1e-3)
