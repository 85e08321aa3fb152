"""The fields that all softmax attention shares: sinks, the sink's logit, the gate."""

from typing import Any

import torch

from txlab.nn.mask import Mask
from txlab.testing.assertions import differ, expect, same
from txlab.testing.contracts.attention import ATTENTION, influence, rotary
from txlab.testing.contracts.window import decoded
from txlab.testing.harness import Subject, contract

W, N = 2, 2
"""Window and sinks of the checks."""


def sinking(subject: Subject) -> bool:
    """Whether the option has a window and tokens that it spares."""
    return subject.has("window", "sinks")


def built_with_sinks(subject: Subject) -> Any:
    alone = {"n_globals": 0} if subject.has("n_globals") else {}
    return rotary(subject, window=W, sinks=N, **alone)


@contract(ATTENTION, when=sinking)
def sinks_stay_in_sight(subject: Subject) -> None:
    """With window=2 and sinks=2 a row sees two tokens and the first two of its document."""
    built = built_with_sinks(subject)
    documents = (torch.arange(9) >= 4).long()[None]
    for what, mask, start in (
        ("one document", Mask(9, 9), 0),
        ("packed", Mask(9, 9, documents=documents), 4),
    ):
        seen = influence(built, 9, mask)
        found = seen[8].nonzero().flatten().tolist()
        wanted = [start, start + 1, 7, 8]
        expect(found == wanted, f"{what}: row 8 sees keys {found}, expected {wanted}")


@contract(ATTENTION, when=sinking)
def sinks_stay_in_the_cache(subject: Subject) -> None:
    """A token decoded on the cache sees exactly the sinks and its window."""
    built = built_with_sinks(subject)
    x = built.inputs(1, 9).expand(10, -1, -1).clone()
    x[torch.arange(9), torch.arange(9)] += 1.0  # row i has token i changed, the last row none
    for chunk in (1, 3):
        y = decoded(built, x, chunk)
        found = ((y[:9] - y[9]).abs().amax(-1) > 1e-6).nonzero().flatten().tolist()
        wanted = [0, 1, 7, 8]
        expect(found == wanted, f"decoded in steps of {chunk}, row 8 sees keys {found}")


@contract(ATTENTION, when=lambda subject: subject.has("sink_logit"))
@torch.no_grad()
def sink_logit_takes_its_share(subject: Subject) -> None:
    """A sink of a very low logit changes nothing; one of a very high logit leaves no output."""
    without = rotary(subject, sink_logit=False, out_bias=False, gate=False)
    built = rotary(subject, sink_logit=True, out_bias=False, gate=False)
    state = without.state_dict()
    x = built.inputs()
    y = without(x)
    for logit, expected in ((-60.0, y), (60.0, torch.zeros_like(y))):
        built.load_state_dict(state, strict=False)
        built.part.sink_logit.fill_(logit)
        same(built(x), expected, f"output with a sink logit of {logit:g}", 1e-5)
    built.part.sink_logit.zero_()
    differ(built(x), y, "output with a sink logit of 0")


@contract(ATTENTION, when=lambda subject: subject.has("gate", "out_bias"))
@torch.no_grad()
def gate_halves_when_flat(subject: Subject) -> None:
    """A gate of zero weights is sigmoid(0): half of what there is without."""
    fields = {"out_bias": False}
    without = rotary(subject, gate=False, **fields)
    built = rotary(subject, gate=True, **fields)
    built.load_state_dict(without.state_dict(), strict=False)
    x = built.inputs()
    built.part.gate.weight.zero_()
    same(built(x), without(x) / 2, "output behind a flat gate", 1e-5)
