"""Time of one attention layer, forward and backward, option beside option at growing lengths.

    python -m benchmarks.attention [--lengths 2048,4096,8192] [--layer]

A row is an attention option with its fields and a mask. By default the attention itself is timed,
queries, keys and values given; with --layer the whole mixer, projections included. Rounds are
interleaved, the figures are medians; `share` is that of the first row at the same length. Add a
row to ROWS to see another option.
"""

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.interleaved import Make, table
from txlab.core.config import Dims
from txlab.nn.attention import SoftmaxAttention, attention
from txlab.nn.backend import backend
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import RoPE


@dataclass
class Row:
    """An option, its fields, how many documents a row of tokens packs, the backend."""

    option: str = "gqa"
    fields: dict[str, Any] = field(default_factory=dict)
    documents: int = 1
    backend: str = "auto"


ROWS: dict[str, Row] = {
    "full": Row(),
    "window": Row(fields={"window": 512}),
    "documents": Row(documents=8),
    "window-sdpa": Row(fields={"window": 512}, backend="sdpa"),
    "documents-sdpa": Row(documents=8, backend="sdpa"),
}
HEADS, WIDTH = 8, 64


def documents(n: int, length: int) -> Tensor:
    """Ids [1 t] of n documents of uneven lengths, mean length / n."""
    if n == 1:
        return torch.zeros(1, length, dtype=torch.long)
    cuts = torch.randperm(length - 1, generator=torch.Generator().manual_seed(n))[: n - 1] + 1
    first = torch.zeros(1, length, dtype=torch.long)
    first[0, cuts] = 1
    return first.cumsum(1)


def mask_of(row: Row, length: int) -> Mask:
    """A new mask, so that lowering it counts every time, as it does once a step."""
    packed = None if row.documents == 1 else documents(row.documents, length)
    return Mask(length, length, documents=packed)


def step_of(row: Row, length: int, *, layer: bool) -> Callable[[], None]:
    """One forward and backward pass of the row's attention."""
    dims = Dims(HEADS * WIDTH, HEADS, WIDTH, 1, length, 8)
    mixer = attention.build(attention.config({"name": row.option, **row.fields}), dims.at(0))
    kernel = backend.build(backend.config(row.backend), dims).pick(mixer.features)
    scheme = RoPE(RoPE.Config(), dims)
    positions = torch.arange(length)[None]
    x = torch.randn(1, length, dims.dim)

    def whole() -> None:
        mask = mask_of(row, length)
        kernel.prepare(mixer.narrow(mask), x)
        ctx = Context(mask, positions, scheme, scheme.prepare(positions), kernel)
        mixer(x, ctx).sum().backward()

    if layer:
        return whole
    assert isinstance(mixer, SoftmaxAttention)
    q, k, v = (
        torch.randn(1, length, n, WIDTH).transpose(1, 2).requires_grad_()
        for n in (mixer.n_heads, mixer.n_kv_heads, mixer.n_kv_heads)
    )

    def core() -> None:
        mask = mixer.narrow(mask_of(row, length))
        kernel.prepare(mask, x)
        kernel.attend(q, k, v, mask, scale=mixer.scale).sum().backward()

    return core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="2048,4096,8192")
    parser.add_argument("--rows", default="full,window,documents")
    parser.add_argument("--layer", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rows: dict[str, Make] = {
        name: functools.partial(step_of, ROWS[name], layer=args.layer)
        for name in args.rows.split(",")
    }
    table(rows, [int(n) for n in args.lengths.split(",")], args.rounds, width=16)


if __name__ == "__main__":
    main()
