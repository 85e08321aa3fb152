"""Time of one sparse attention layer, forward and backward, beside full attention and transformers.

    python -m benchmarks.sparse [--lengths 2048,4096] [--rows full,longformer ...]

A row is a whole layer of 8 heads of 64 channels with its q, k, v projections and no output
projection (transformers' have none). Longformer: 256 tokens each way and 4 global ones. BigBird:
blocks of 64, three near each way where causality allows, two global, three random. Rounds are
interleaved, the figures are medians; `share` is that of the first row at the same length.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.interleaved import Make, table
from txlab.core.config import Dims
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import NoPosition

HEADS, WIDTH = 8, 64
SIDE, GLOBALS, BLOCK, RANDOM = 256, 4, 64, 3
SPARSE: dict[str, dict[str, Any]] = {
    "mha": {"name": "mha"},
    "longformer": {"name": "longformer", "window": SIDE + 1, "n_globals": GLOBALS},
    "bigbird": {
        "name": "bigbird",
        "n_kv_heads": HEADS,
        "block": BLOCK,
        "n_random": RANDOM,
        "n_window": 2,
    },
}


def ours(option: str, length: int, *, causal: bool, kernel: str = "auto") -> Callable[[], None]:
    """One forward and backward pass of our layer; the mask is new each time, as in a step."""
    dims = Dims(HEADS * WIDTH, HEADS, WIDTH, 1, length, 8)
    mixer: Any = attention.build(attention.config(SPARSE[option]), dims.at(0))
    mixer.o = nn.Identity()
    chosen = backend.build(backend.config(kernel), dims).pick(mixer.features)
    scheme = NoPosition(NoPosition.Config(), dims)
    positions = torch.arange(length)[None]
    x = torch.randn(1, length, dims.dim)

    def step() -> None:
        mask = Mask(length, length, causal=causal)
        chosen.prepare(mixer.narrow(mask), x)
        mixer(x, Context(mask, positions, scheme, positions, chosen)).sum().backward()

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
    """Transformers' layer, both ways, in training mode."""
    from transformers.models.big_bird import modeling_big_bird as theirs

    config = theirs.BigBirdConfig(
        hidden_size=HEADS * WIDTH,
        num_attention_heads=HEADS,
        block_size=BLOCK,
        num_random_blocks=RANDOM,
        max_position_embeddings=4096,
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


ROWS: dict[str, Make] = {
    "full, causal": lambda n: ours("mha", n, causal=True),
    "full, both ways": lambda n: ours("mha", n, causal=False),
    "longformer, causal": lambda n: ours("longformer", n, causal=True),
    "longformer, both ways": lambda n: ours("longformer", n, causal=False),
    "transformers Longformer": longformer,
    "bigbird, causal": lambda n: ours("bigbird", n, causal=True),
    "bigbird, both ways": lambda n: ours("bigbird", n, causal=False),
    "transformers BigBird": bigbird,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="2048,4096")
    parser.add_argument("--rows", default="", help="words that a row's name must have one of")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    words = [word for word in args.rows.split(",") if word]
    names = [name for name in ROWS if not words or any(word in name for word in words)]
    rows = {name: ROWS[name] for name in names}
    table(rows, [int(n) for n in args.lengths.split(",")], args.rounds, width=26)


if __name__ == "__main__":
    main()
