"""Runs of queries against their own keys: equal to the definition, and cut where they may be."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

from tests.nn.test_backend import masks
from txlab.nn.backend import Banded, Math
from txlab.nn.backend.bands import bands
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.tiny import DIMS, floats


def more() -> dict[str, Mask]:
    """Masks over rows of 23, several runs of 4 long."""
    documents = torch.repeat_interleave(torch.arange(4), torch.tensor([9, 1, 6, 7])).expand(2, -1)
    mixed = torch.stack([documents[0], documents[0].flip(0)])
    valid = torch.ones(2, 23, dtype=torch.bool)
    valid[0, :7] = False
    valid[1, 19:] = False
    spread = torch.arange(23).expand(2, -1) % torch.tensor([[3], [5]]) == 1
    index = torch.tensor([[3], [11]]) + torch.arange(5)
    behind = torch.where(torch.arange(5) < torch.tensor([[2], [5]]), index, 40)
    return masks() | {
        "long causal": Mask(23, 23),
        "long window": Mask(23, 23, window=5),
        "long two-sided window": Mask(23, 23, causal=False, window=5),
        "window and sinks": Mask(23, 23, window=3, sinks=2),
        "sinks, both ways": Mask(23, 23, causal=False, window=2, sinks=3),
        "long documents": Mask(23, 23, documents=documents),
        "long documents, both ways": Mask(23, 23, causal=False, documents=documents),
        "documents out of order": Mask(23, 23, documents=mixed),
        "documents, window, sinks, padding": Mask(
            23, 23, documents=documents, window=3, sinks=2, valid=valid
        ),
        "window over padding": Mask(23, 23, window=3, valid=spread),
        "window over padding, both ways": Mask(23, 23, causal=False, window=3, valid=spread),
        "window over padding, sinks": Mask(23, 23, window=2, sinks=2, valid=spread | valid),
        "padding, window, sinks": Mask(23, 23, window=3, sinks=2, valid=valid),
        "chunk, window, sinks": Mask(5, 23, q_index=18, window=3, sinks=1),
        "uneven chunk, window, sinks": Mask(5, 23, q_index=index, window=3, sinks=1),
        "padded chunk, window": Mask(5, 16, q_index=behind, window=3, padded=True),
    }


@pytest.fixture(autouse=True, params=[1, 10**6], ids=["by document", "by run"])
def short(request, monkeypatch) -> None:
    """Documents one by one as well as in runs."""
    monkeypatch.setattr("txlab.nn.backend.bands.SHORT", request.param)


@pytest.mark.parametrize("how", [(), ("score",), ("softcap",), ("score", "softcap", "sink_logit")])
@pytest.mark.parametrize("case", more())
def test_equals_the_definition(case: str, how: tuple[str, ...]) -> None:
    mask = more()[case]
    found: list[list[Tensor]] = []
    for built in (Math(Math.Config(), DIMS), Banded(Banded.Config(run=4), DIMS)):
        sink = floats(4, seed=5).requires_grad_()
        every = {"score": lambda h, q, k: -0.1 * (h + 1) * (q - k), "softcap": 2.0}
        given = {name: ({"sink_logit": sink} | every)[name] for name in how}
        leaves = [
            floats(2, n, t, 8, seed=n).requires_grad_()
            for n, t in ((4, mask.n_queries), (2, mask.n_keys), (1, mask.n_keys))
        ]
        leaves[2] = floats(2, 2, mask.n_keys, 8, seed=7).requires_grad_()
        built.prepare(mask, leaves[0])
        y = built.attend(*leaves, mask, scale=0.5, **given)
        (y * floats(*y.shape, seed=9)).sum().backward()
        found.append([y, *(x.grad for x in leaves), *([sink.grad] if "sink_logit" in how else [])])
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("case", "blocks"),
    [
        ("long causal", [range(n + 1) for n in range(6)]),
        ("long window", [(0,), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        ("long two-sided window", [(0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 5)]),
        ("window and sinks", [(0,), (0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]),
        ("long documents", [(0,), (0, 1), (0, 1, 2), (2, 3), (4,), (4, 5)]),
        ("documents out of order", [range(n + 1) for n in range(6)]),
        ("chunk, window, sinks", [(0, 4, 5), (0, 5)]),
        ("uneven chunk, window, sinks", [(0, 1, 2, 3), (0, 1, 2, 3)]),
    ],
)
def test_each_run_has_the_blocks_that_it_may_see(case: str, blocks: list) -> None:
    cut = bands(more()[case], 4)
    assert cut is not None
    assert [list(found) for found in cut.blocks] == [list(wanted) for wanted in blocks]


def test_no_seen_key_is_left_out_and_layers_share_one_cut() -> None:
    for case, mask in more().items():
        cut = bands(mask, 4)
        assert cut is bands(mask, 4), case
        dense = mask.dense(torch.device("cpu")).any(0)[0]
        for n, blocks in enumerate(cut.blocks):
            seen = dense[4 * n : 4 * n + 4].any(0).nonzero().flatten() // 4
            assert set(seen.tolist()) <= set(blocks), case


def test_keys_in_no_order_are_one_run() -> None:
    assert bands(Mask(1, 4, slots=torch.tensor([[2, 3, 0, 1]])), 4) is None


@torch.no_grad()
def test_packed_documents_in_compiled_graphs() -> None:
    """The whole model is one graph; blocks leave theirs for the cut, and say so where they may not.

    What decides the cut are numbers of a tensor: no graph can have it for the next batch as well.
    """
    model = tiny.model(backend=Banded.Config(run=8))
    ids, documents = tiny.tokens(1, 24), (torch.arange(24) // 10)[None]
    wanted = model(ids, documents=documents).states
    torch.compiler.reset()
    graph = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(graph(ids, documents=documents).states, wanted)
    for block in model.layers.blocks():
        block.compile(backend="aot_eager")
    torch.testing.assert_close(model(ids, documents=documents).states, wanted)
    torch.compiler.reset()
    for block in model.layers.blocks():
        block.compile(backend="aot_eager", fullgraph=True)
    with pytest.raises(Unsupported, match=r"without fullgraph=True, or use model\.backend=sdpa"):
        model(ids, documents=documents)
    torch.compiler.reset()
