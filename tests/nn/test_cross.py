"""Cross-attention as a branch of a block: the memory's cache, order of branches, refusals."""

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.attention import GQA, CrossAttention
from txlab.nn.attention.cross import BranchCaches, CrossCache
from txlab.nn.backend import Auto
from txlab.nn.cache import Cache
from txlab.nn.ffn import MLP
from txlab.nn.mask import Mask
from txlab.nn.norm import RMSNorm
from txlab.nn.position import RoPE
from txlab.nn.residual import Parallel, Post, Pre
from txlab.nn.stack import LayerPlan, Stack
from txlab.testing import tiny

S = 5


def stack(residual: type = Pre, **fields: object) -> Stack:
    plan = LayerPlan(
        GQA.Config(),
        MLP.Config(),
        RoPE(RoPE.Config(), tiny.DIMS),
        cross=CrossAttention.Config(**fields),
    )
    made = Stack(
        [plan, plan],
        tiny.DIMS,
        backend=Auto(Auto.Config(), tiny.DIMS),
        norm_config=RMSNorm.Config(),
        residual_config=residual.Config(),
    )
    tiny.shake(made)
    return made.eval()


def read(made: Stack, x: Tensor, memory: Tensor, valid: Tensor | None = None) -> Tensor:
    t, mask = x.shape[1], None
    if valid is not None:
        mask = Mask(t, memory.shape[1], causal=False, valid=valid)
    positions = torch.arange(t)[None]
    return made(x, Mask(t, t), positions, memory=memory, memory_mask=mask)[0]


@pytest.mark.parametrize("residual", [Pre, Post, Parallel])
def test_every_token_reads_all_of_the_memory_and_no_later_token(residual: type) -> None:
    made = stack(residual)
    x, memory = tiny.floats(1, 6, 32), tiny.floats(1, S, 32, seed=2)
    y = read(made, x, memory)
    for place in range(S):
        other = memory.clone()
        other[:, place] += 1.0
        assert ((read(made, x, other) - y).abs().amax(-1) > 1e-5).all(), place
    later = x.clone()
    later[:, 3] += 1.0
    torch.testing.assert_close(read(made, later, memory)[:, :3], y[:, :3])


@torch.no_grad()
def test_decoding_keeps_the_memorys_keys_and_follows_rows() -> None:
    made = stack()
    x, memory = tiny.floats(2, 6, 32), tiny.floats(2, S, 32, seed=2)
    valid = tiny.padded((S, 3), left=False)
    expected = read(made, x, memory, valid)
    cache = made.new_cache(2, 6, x.device, x.dtype)
    assert (
        cache.bytes_per_token()
        == Cache(
            [layer.own for layer in cache.layers if isinstance(layer, BranchCaches)], 6
        ).bytes_per_token()
    )
    at = 0
    for n in (3, 1, 1):
        mask, positions = cache.place(2, n, None, x.device)
        seen = Mask(n, S, causal=False, valid=valid)
        # Only the first call reads the memory itself.
        given = memory if at == 0 else torch.full_like(memory, torch.nan)
        y, _ = made(x[:, at : at + n], mask, positions, cache, memory=given, memory_mask=seen)
        torch.testing.assert_close(y, expected[:, at : at + n], atol=1e-5, rtol=1e-5)
        at += n
    cache.reorder(torch.tensor([1, 1]))
    mask, positions = cache.place(2, 1, None, x.device)
    seen = Mask(1, S, causal=False, valid=valid[[1, 1]])
    y, _ = made(x[[1, 1], at:], mask, positions, cache, memory=memory, memory_mask=seen)
    torch.testing.assert_close(y, expected[[1, 1], at:], atol=1e-5, rtol=1e-5)


def test_weights_have_their_own_name_and_all_learn() -> None:
    made = stack(qk_norm=True, gate=True, n_kv_heads=2)
    assert "0.cross.q.weight" in made.state_dict()
    assert list(made.blocks()[0].residual.norms) == ["attn", "cross", "ffn"]
    read(made, tiny.floats(2, 4, 32), tiny.floats(2, S, 32, seed=2)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in made.parameters())


@torch.no_grad()
def test_a_compiled_block_gives_the_same() -> None:
    made = stack()
    x, memory = tiny.floats(1, 4, 32), tiny.floats(1, S, 32, seed=2)
    expected = read(made, x, memory)
    torch.compiler.reset()
    for block in made.blocks():
        block.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(read(made, x, memory), expected)
    torch.compiler.reset()


def test_what_means_nothing_between_two_texts_is_refused() -> None:
    with pytest.raises(RequestError, match="window=3"):
        CrossAttention.Config(window=3)
    made = stack()
    x, memory = tiny.floats(1, 4, 32), tiny.floats(1, S, 32)
    with pytest.raises(ValueError, match="memory_mask is causal"):
        made(x, Mask(4, 4), torch.arange(4)[None], memory=memory, memory_mask=Mask(4, S))
    assert CrossCache().bytes_per_token() == 0
