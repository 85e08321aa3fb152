"""Longformer's and BigBird's attention of transformers: the same values and gradients."""

from dataclasses import dataclass
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.big_bird.modeling_big_bird import (
    BigBirdBlockSparseAttention,
    BigBirdConfig,
    BigBirdModel,
)
from transformers.models.longformer.modeling_longformer import (
    LongformerConfig,
    LongformerSelfAttention,
)

from txlab.core.config import Dims
from txlab.nn.attention import GQA, SoftmaxAttention
from txlab.nn.attention.bigbird import BigBird
from txlab.nn.attention.longformer import Longformer
from txlab.nn.backend import Banded, Math
from txlab.nn.blocks import BlockGraph
from txlab.nn.mask import Mask
from txlab.testing import tiny
from txlab.testing.probes import MixerProbe

DIMS = Dims(dim=16, n_heads=2, head_dim=8, n_layers=1, context=64, vocab_size=11)
NAMES = {"q": "query", "k": "key", "v": "value"}


def twin(ours: SoftmaxAttention, theirs: nn.Module, backend: type) -> MixerProbe:
    """Our mixer with their projections, and no output projection as theirs have none."""
    with torch.no_grad():
        for name, linear in ours.named_children():
            letter, _, rest = name.partition("_")
            if letter in NAMES:
                source = getattr(theirs, NAMES[letter] + (f"_{rest}" if rest else ""))
                linear.weight.copy_(source.weight)
                linear.bias.copy_(source.bias)
    ours.o = nn.Identity()
    return MixerProbe(ours, DIMS, backend=backend(backend.Config(), DIMS))


def compare(ours: MixerProbe, theirs: nn.Module, x: Tensor, y: Tensor, z: Tensor) -> None:
    """Outputs y (ours) and z (theirs) of x, and their gradients."""
    torch.testing.assert_close(y, z, atol=1e-4, rtol=1e-4)
    weights = tiny.floats(*y.shape, seed=3)
    mine = dict(ours.part.named_parameters())
    others = [
        getattr(theirs, NAMES[name[0]] + ("_global" if "_global" in name else "")) for name in mine
    ]
    wanted = [getattr(o, name.rpartition(".")[2]) for o, name in zip(others, mine, strict=True)]
    found = torch.autograd.grad((y * weights).sum(), [x, *mine.values()])
    expected = torch.autograd.grad((z * weights).sum(), [x, *wanted])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", [Math, Banded])
@pytest.mark.parametrize("side", [2, 4])
def test_longformer(side: int, backend: type) -> None:
    torch.manual_seed(0)
    n = 24
    theirs = LongformerSelfAttention(
        LongformerConfig(
            hidden_size=16,
            num_attention_heads=2,
            attention_window=[2 * side],
            attention_probs_dropout_prob=0.0,
        ),
        layer_id=0,
    )
    tiny.shake(theirs)
    # Their window is that of both sides, the token itself apart.
    ours = twin(
        Longformer(Longformer.Config(window=side + 1, qkv_bias=True), DIMS.at(0)), theirs, backend
    )
    valid = torch.arange(n) < torch.tensor([[n], [19]])
    special = torch.zeros(2, n, dtype=torch.bool)
    special[0, [0, 9, 17]] = True
    special[1, [2]] = True
    kind = torch.where(special, 10000.0, 0.0).masked_fill(~valid, -10000.0)
    x = tiny.floats(2, n, 16).requires_grad_()
    (z,) = theirs(
        x,
        attention_mask=kind,
        is_index_masked=kind < 0,
        is_index_global_attn=kind > 0,
        is_global_attn=True,
    )
    y = ours(x, mask=Mask(n, n, causal=False, valid=valid, globals_=special))
    there = valid[..., None]
    compare(ours, theirs, x, y * there, z * there)


@dataclass(frozen=True)
class Table(BlockGraph):
    """Any table of blocks, row by row."""

    rows: tuple[tuple[bool, ...], ...] = ()

    def joined(self, i: Tensor, j: Tensor) -> Tensor:
        return torch.tensor(self.rows)[i, j]

    def joins_all(self, n_tokens: int) -> bool:
        return False


def drawn_by(theirs: Any) -> list[Any]:
    """Filled, when they run, with the blocks that they draw: the same ones for all heads."""
    found: list[Any] = []
    draw = theirs._bigbird_block_rand_mask_with_head

    def same_for_all(self: Any, **how: Any) -> list[Any]:
        heads = draw(**how)
        found.append(heads[0])
        return [heads[0]] * len(heads)

    theirs._bigbird_block_rand_mask_with_head = MethodType(same_for_all, theirs)
    return found


def test_bigbird_with_the_table_that_they_draw() -> None:
    torch.manual_seed(0)
    block, n = 4, 64
    config = BigBirdConfig(
        hidden_size=16,
        num_attention_heads=2,
        block_size=block,
        num_random_blocks=2,
        max_position_embeddings=n,
    )
    theirs = BigBirdBlockSparseAttention(config, seed=5).train()
    tiny.shake(theirs)
    drawn = drawn_by(theirs)
    valid = torch.arange(n) < torch.tensor([[n], [57]])
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(
        valid.float(), block
    )
    x = tiny.floats(2, n, 16).requires_grad_()
    z = theirs(
        x,
        band_mask=band,
        from_mask=rows,
        to_mask=columns,
        from_blocked_mask=blocked,
        to_blocked_mask=blocked,
    )[0]
    table = torch.zeros(n // block, n // block, dtype=torch.bool)
    i = torch.arange(n // block)
    table |= (i[:, None] - i).abs() < 2
    table[[0, -1]] = table[:, [0, -1]] = True
    (choice,) = drawn
    for row, blocks in enumerate(choice, start=1):
        for j in blocks:
            assert not table[row, j], "they count a block twice"
            table[row, j] = True
    assert table.sum(1).float().mean() < 9
    part = BigBird(BigBird.Config(n_kv_heads=2, qkv_bias=True), DIMS.at(0))
    part.blocks = Table(block, 0, 1, 0, rows=tuple(map(tuple, table.tolist())))
    assert isinstance(part, GQA)
    ours = twin(part, theirs, Math)
    y = ours(x, mask=Mask(n, n, causal=False, valid=valid))
    there = valid[..., None]
    compare(ours, theirs, x, y * there, z * there)
