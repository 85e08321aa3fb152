"""Grouped key/value heads: which query heads share one, and which numbers of them are refused."""

from typing import Any

import torch

from txlab.core.config import Dims
from txlab.nn.attention import MHA, MQA
from txlab.testing import tiny
from txlab.testing.assertions import expect, refused, same
from txlab.testing.contracts.attention import ATTENTION
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import MixerProbe, probe


def grouped(subject: Subject) -> bool:
    """Whether the option lets its number of key/value heads be chosen."""
    return subject.has("n_kv_heads")


def head_owners(built: Any) -> list[int]:
    """Key/value head that each query head reads, told by values that spell the head's number."""
    part, n, width = built.part, built.dims.n_heads, built.dims.head_dim
    with torch.no_grad():
        # Values are constant and carry their head's number; the output layer passes heads on.
        part.v = torch.nn.Linear(built.dims.dim, part.v.out_features)
        part.v.weight.zero_()
        part.v.bias.copy_(torch.arange(part.v.out_features) // width)
        part.o = torch.nn.Identity()
        y = built(built.inputs(1, 5)).unflatten(-1, (n, width))
    return y[0, -1, :, 0].round().long().tolist()


@contract(ATTENTION, when=grouped)
def heads_are_grouped_in_order(subject: Subject) -> None:
    """With 4 query and 2 key/value heads, query heads 0, 1 read head 0 and 2, 3 read head 1."""
    for n_kv_heads, wanted in ((1, [0, 0, 0, 0]), (2, [0, 0, 1, 1]), (4, [0, 1, 2, 3])):
        # Neither a gate nor a sink, which would make the numbers smaller.
        plain: Any = {name: False for name in ("gate", "sink_logit") if subject.has(name)}
        found = head_owners(probe(subject, n_kv_heads=n_kv_heads, **plain))
        expect(found == wanted, f"n_kv_heads={n_kv_heads}: heads read {found}, expected {wanted}")


@contract(ATTENTION, when=grouped)
def extremes_are_mha_and_mqa(subject: Subject) -> None:
    """As many key/value heads as query heads is MHA, one is MQA, with the same weights."""
    for n_kv_heads, twin in ((tiny.DIMS.n_heads, MHA), (1, MQA)):
        built = probe(subject, n_kv_heads=n_kv_heads)
        shared = {name: value for name, value in subject.fields if name != "n_kv_heads"}
        other = MixerProbe(twin(twin.Config(**shared), tiny.DIMS.at(0)), tiny.DIMS)
        other.load_state_dict(built.state_dict(), strict=True)
        x = built.inputs()
        same(built(x), other(x), f"n_kv_heads={n_kv_heads} against {twin.__name__}", 1e-6)


@contract(ATTENTION, when=grouped)
def uneven_groups_are_refused(subject: Subject) -> None:
    """6 query heads and 4 key/value heads are refused by a line that names both."""
    dims = Dims(dim=48, n_heads=6, head_dim=8, n_layers=1, context=16, vocab_size=17)
    error = None
    try:
        subject.build(dims, config=subject.config(n_kv_heads=4))
    except Exception as caught:
        error = caught
    refused(error, (6, 4, "n_kv_heads"), "n_heads=6 with n_kv_heads=4")
