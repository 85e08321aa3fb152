"""Attention layers of other libraries, each a step forward and backward at a length.

The settings of the sparse ones are those that benchmarks/attention.py gives ours.
"""

from collections.abc import Callable

import torch
from torch import Tensor

HEADS, WIDTH = 8, 64
SIDE, GLOBALS, BLOCK, RANDOM = 256, 4, 64, 3
"""Longformer: tokens seen each way, and global ones. BigBird: tokens in a block, random blocks."""


def x_transformers(length: int) -> Callable[[], None]:
    """x-transformers' causal attention with rotary positions, by the fused kernel."""
    from x_transformers.x_transformers import Attention, RotaryEmbedding

    layer = Attention(dim=HEADS * WIDTH, dim_head=WIDTH, heads=HEADS, causal=True, flash=True)
    rotary = RotaryEmbedding(WIDTH)
    x = torch.randn(1, length, HEADS * WIDTH)

    def step() -> None:
        angles = rotary.forward_from_seq_len(length)
        layer(x, rotary_pos_emb=angles).sum().backward()

    return step


def longformer(length: int) -> Callable[[], None]:
    """Transformers' layer, both ways."""
    from transformers.models.longformer import modeling_longformer as theirs

    config = theirs.LongformerConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        attention_window=[2 * SIDE],
        attention_probs_dropout_prob=0.0,
    )
    layer = theirs.LongformerSelfAttention(config, layer_id=0)
    x = torch.randn(1, length, HEADS * WIDTH)
    kind = torch.zeros(1, length)
    kind[:, :GLOBALS] = 10000.0

    def step() -> None:
        masked, special = kind < 0, kind > 0
        layer(x, kind, masked, special, True)[0].sum().backward()

    return step


def bigbird(length: int) -> Callable[[], None]:
    """Transformers' layer, both ways, in training mode: in evaluation it draws no blocks."""
    from transformers.models.big_bird import modeling_big_bird as theirs

    config = theirs.BigBirdConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        block_size=BLOCK,
        num_random_blocks=RANDOM,
        max_position_embeddings=max(4096, length),
    )
    layer = theirs.BigBirdBlockSparseAttention(config, seed=0).train()
    x = torch.randn(1, length, HEADS * WIDTH)
    make = theirs.BigBirdModel.create_masks_for_block_sparse_attn

    def step() -> None:
        blocked, band, rows, columns = make(torch.ones(1, length), BLOCK)
        masks: dict[str, Tensor] = {
            "band_mask": band,
            "from_mask": rows,
            "to_mask": columns,
            "from_blocked_mask": blocked,
            "to_blocked_mask": blocked,
        }
        layer(x, **masks)[0].sum().backward()

    return step
