"""Block-sparse attention: the explicit table of blocks, the draws, and every way tokens arrive."""

from typing import Any

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.attention.bigbird import BigBird
from txlab.nn.backend import SDPA, Banded, Math
from txlab.nn.backend.banded import runs
from txlab.nn.backend.bands import bands
from txlab.nn.blocks import BlockGraph
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.tiny import DIMS, floats

SMALL: dict[str, Any] = {"block": 2, "n_random": 1, "n_window": 2, "n_global": 1}
GRAPH = BlockGraph(2, 2, 2, 1, seed=3, layer=1)


def table(graph: BlockGraph, n: int) -> Tensor:
    """Which of n blocks see which, bool [n n], from the lists of earlier blocks."""
    found = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        found[i, graph.earlier(i)] = True
    return found | found.T


def test_pairs_and_lists_tell_the_same_graph() -> None:
    for graph in (GRAPH, BlockGraph(4, 3, 1, 0), BlockGraph(4, 0, 2, 2), BlockGraph(1, 5, 3, 2)):
        i = torch.arange(40)
        assert torch.equal(graph.joined(i[:, None], i), table(graph, 40))


def test_each_block_draws_as_many_as_asked_among_those_far_behind() -> None:
    graph = BlockGraph(64, 3, 3, 2, seed=5)
    for i in range(200):
        far = [j for j in graph.earlier(i) if 2 <= j < i - 2]
        assert len(far) == min(3, max(0, i - 4))
    assert graph.joins_all(8 * 64)
    assert table(graph, 8).all()
    assert not table(graph, 9).all()


def test_draws_depend_on_seed_layer_and_block_and_spread_evenly() -> None:
    graphs = [BlockGraph(64, 3, 3, 2, seed=s, layer=n) for s in (0, 1) for n in (0, 1)]
    tables = [table(graph, 64) for graph in graphs]
    for n, one in enumerate(tables):
        assert not any(torch.equal(one, other) for other in tables[:n])
    drawn = torch.zeros(100)
    for seed in range(400):
        for j in BlockGraph(64, 3, 3, 2, seed=seed).earlier(104):
            if 2 <= j < 102:
                drawn[j - 2] += 1
    assert drawn.sum() == 1200
    assert drawn.min() >= 1
    assert drawn.max() < 30  # twelve on average


def test_a_longer_row_sees_the_same_blocks() -> None:
    assert torch.equal(table(GRAPH, 50)[:20, :20], table(GRAPH, 20))


def masks() -> dict[str, tuple[Mask, Tensor]]:
    """Masks over 23 tokens, and the places in whose blocks tokens stand."""
    documents = torch.repeat_interleave(torch.arange(2), torch.tensor([14, 9])).expand(2, -1)
    places = torch.cat([torch.arange(14), torch.arange(9)]).expand(2, -1)
    valid = tiny.padded((23, 17), left=True)
    right = tiny.padded((23, 17), left=False)
    row = torch.arange(23).expand(2, -1)
    return {
        "plain": (Mask(23, 23), row),
        "both ways": (Mask(23, 23, causal=False), row),
        "documents": (Mask(23, 23, documents=documents), places),
        "documents both ways": (Mask(23, 23, documents=documents, causal=False), places),
        "left padding": (Mask(23, 23, valid=valid), (valid.cumsum(1) - 1).clamp(min=0)),
        "right padding": (Mask(23, 23, valid=right, causal=False), row),
    }


@pytest.mark.parametrize("case", masks())
def test_the_mask_is_the_explicit_table(case: str) -> None:
    mask, places = masks()[case]
    found = mask.narrow(blocks=GRAPH).dense(torch.device("cpu"))
    blocks = places // 2
    wanted = table(GRAPH, 12)[blocks[:, :, None], blocks[:, None]]
    both = mask.dense(torch.device("cpu"))[:, 0] & wanted
    there = torch.ones(2, 23, dtype=torch.bool) if mask.valid is None else mask.valid
    found = found[:, 0].expand_as(both)
    assert torch.equal(found & there[:, :, None], both & there[:, :, None])
    assert not found.all()


@pytest.mark.parametrize("fine", [2, 4])
@pytest.mark.parametrize("short", [1, 10**6])
@pytest.mark.parametrize("case", masks())
def test_every_backend_computes_it(case: str, short: int, fine: int, monkeypatch) -> None:
    monkeypatch.setattr("txlab.nn.backend.bands.SHORT", short)
    monkeypatch.setattr("txlab.nn.backend.bands.FINE", fine)
    mask = masks()[case][0].narrow(blocks=GRAPH)
    found = []
    for backend in (
        Math(Math.Config(), DIMS),
        SDPA(SDPA.Config(), DIMS),
        Banded(Banded.Config(), DIMS),
    ):
        leaves = [floats(2, n, 23, 8, seed=n).requires_grad_() for n in (4, 2)]
        leaves.append(floats(2, 2, 23, 8, seed=7).requires_grad_())
        backend.prepare(mask, leaves[0])
        y = backend.attend(*leaves, mask, scale=0.5)
        y = y if mask.valid is None else y * mask.valid[:, None, :, None]
        (y * floats(*y.shape, seed=9)).sum().backward()
        found.append([y, *(x.grad for x in leaves)])
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[2], found[0], atol=1e-5, rtol=1e-5)


def test_runs_need_the_blocks_of_the_table_only() -> None:
    graph = BlockGraph(64, 3, 3, 2)
    cut = bands(Mask(4096, 4096).narrow(blocks=graph), 256)
    assert cut is not None
    assert [list(some) for some in cut.blocks] == [graph.earlier(i) for i in range(64)]
    assert cut.share < 0.15


def test_layers_that_draw_other_blocks_share_the_masks_of_their_runs() -> None:
    base, looked = Mask(1024, 1024), []
    for layer in range(2):
        mask = base.narrow(blocks=BlockGraph(64, 2, 2, 1, layer=layer))
        cut = bands(mask, 256)
        assert cut is not None
        looked += [run.seen for run in runs(mask, cut, torch.device("cpu"))]
    # But for the own block, all that a run has is seen: a mask for each number of blocks.
    assert len(looked) == 2 * 16
    assert len({id(seen) for seen in looked}) == len({seen.shape for seen in looked}) <= 6
    both = Mask(1024, 1024, causal=False).narrow(blocks=BlockGraph(64, 2, 2, 1))
    cut = bands(both, 256)
    assert cut is not None
    assert all(run.seen is None for run in runs(both, cut, torch.device("cpu")))


@torch.no_grad()
def test_decoding_in_any_chunks_is_the_full_pass() -> None:
    for fields in ({}, {"window": 5, "sinks": 1}):
        model = tiny.model(attn=BigBird.Config(**SMALL, **fields))
        tokens = tiny.tokens(2, 18)
        wanted = model(tokens).states
        for sizes in ((1,) * 18, (7, 1, 5, 4, 1), (17, 1)):
            cache = model.new_cache(2, 20)
            parts = [model(part, cache=cache).states for part in tokens.split(sizes, 1)]
            torch.testing.assert_close(torch.cat(parts, 1), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("left", [True, False])
@torch.no_grad()
def test_uneven_rows_decode_as_if_alone(left: bool) -> None:
    model = tiny.model(attn=BigBird.Config(**SMALL))
    lengths, new = (5, 12, 17), 4
    rows = [tiny.tokens(1, n + new, seed=n)[0] for n in lengths]
    alone = [model(row[None]).states[0] for row in rows]
    valid = tiny.padded(lengths, left=left)
    prompt = torch.full(valid.shape, 5)
    for row, n in enumerate(lengths):
        prompt[row, valid[row]] = rows[row][:n]
    cache = model.new_cache(3, 24)
    first = model(prompt, valid=valid, cache=cache).states
    cache.fix_shapes(3, torch.device("cpu"))
    for row, n in enumerate(lengths):
        torch.testing.assert_close(first[row, valid[row]], alone[row][:n], atol=2e-5, rtol=1e-4)
    for step in range(new):
        tokens = torch.stack([rows[i][n + step] for i, n in enumerate(lengths)])[:, None]
        found = model(tokens, cache=cache).states[:, 0]
        wanted = torch.stack([alone[i][n + step] for i, n in enumerate(lengths)])
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"block": 0}, "block=0"), ({"n_window": 0}, "n_window=0"), ({"seed": -1}, "seed")],
)
def test_refusals(fields: dict[str, int], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        BigBird.Config(**fields)
