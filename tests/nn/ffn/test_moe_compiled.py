"""Mixtures in compiled graphs: every pair of settings, with and without padding, as in eager."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.covering import Part, covering
from txlab.core.config import Dims
from txlab.nn.context import Context
from txlab.nn.ffn import MoE
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.probes import FFNProbe

DIMS = Dims(dim=16, n_heads=2, head_dim=8, n_layers=1, context=8, vocab_size=10)
FACTORS: dict[str, list[Any]] = {
    "top_k": [2, 1, 3],
    "expert": ["swiglu", "mlp", "geglu", "reglu"],
    "bias": [False, True],
    "n_shared": [0, 2],
    "scoring": ["softmax", "sigmoid", "softmax_after"],
    "norm_top_k": [None, False],
    "scale": [1.0, 2.5],
    "top_groups": [2, 1],
    "balance_loss": [0.01, 0.0],
    "z_loss": [0.0, 0.001],
    "bias_rate": [None, 0.001],
    "capacity_factor": [None, 0.5],
    "jitter": [0.0, 0.1],
    "padded": [False, True],
}
NAMES = list(FACTORS)


def part(**fields: Any) -> Part:
    return tuple(sorted((NAMES.index(n), FACTORS[n].index(v)) for n, v in fields.items()))


REFUSED = (
    part(top_k=1, scoring="softmax_after"),
    part(norm_top_k=False, scoring="softmax_after"),
)
CASES = [
    {name: values[i] for (name, values), i in zip(FACTORS.items(), case, strict=True)}
    for case in covering([len(values) for values in FACTORS.values()], 2, REFUSED)
]


@pytest.mark.parametrize("case", CASES, ids=[str(i) for i in range(len(CASES))])
def test_one_graph_that_computes_the_same(case: dict[str, Any]) -> None:
    fields = {name: value for name, value in case.items() if name != "padded"}
    config = MoE.Config(n_experts=6, hidden=8, n_groups=2, **fields)
    with tiny.seeded(0):
        built: Any = FFNProbe(MoE(config, DIMS), DIMS).train()
    tiny.shake(built)
    valid = tiny.padded((9, 5), left=False) if case["padded"] else None
    mask, positions = Mask(9, 9, valid=valid), torch.arange(9)[None]
    ctx = Context(mask, positions, built.position, positions, built.backend)
    torch.compiler.reset()
    compiled = torch.compile(built.part, backend="aot_eager", fullgraph=True)
    found: list[list[Tensor]] = []
    for layer in (built.part, compiled):
        x = tiny.floats(2, 9, 16).requires_grad_()
        with tiny.seeded(1):
            y, aux = layer(x, ctx)
        total = (y * y.cos()).sum() + sum(aux.losses.values())
        gradients = torch.autograd.grad(total, [x, *built.parameters()])
        figures = [number for pair in aux.figures.values() for number in pair]
        found.append([y, *aux.losses.values(), *aux.loads, *figures, *gradients])
    torch.testing.assert_close(*found)
    torch.compiler.reset()
