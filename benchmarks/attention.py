"""Time of every kind of attention beside full attention and beside peers, forward and backward.

    python -m benchmarks.attention [--lengths 2048,4096,8192] [--rows window,transformers]
                                   [--cpu --threads 1]

Three tables. Attention alone: queries, keys and values given, 8 heads on 2. Whole causal layers of
8 heads of 64 channels, projections and rotary positions included, and x-transformers' with flash
attention. Whole layers that see both ways, without output projection and positions, which
transformers' Longformer and BigBird lack; theirs is BigBird in training mode. One row of T tokens,
float32, the mask lowered anew each time, as it is once a step. Rounds are interleaved, the figures
are medians; the share is that of a table's first row at the same length. --cpu counts CPU time
instead of the clock's: with one thread it can be read on a busy machine.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import attention_peers as peers
from benchmarks.interleaved import Make, table
from txlab.core.config import Dims
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import NoPosition, RoPE

HEADS, WIDTH = peers.HEADS, peers.WIDTH
WINDOW: dict[str, Any] = {"name": "swa", "window": 512}
LONGFORMER: dict[str, Any] = {
    "name": "longformer",
    "window": peers.SIDE + 1,
    "n_globals": peers.GLOBALS,
}
BIGBIRD: dict[str, Any] = {
    "name": "bigbird",
    "n_kv_heads": HEADS,
    "block": peers.BLOCK,
    "n_random": peers.RANDOM,
    "n_window": 2,
}


def documents(n: int, length: int) -> Tensor:
    """Ids [1 t] of n documents of uneven lengths, mean length / n."""
    cuts = torch.randperm(length - 1, generator=torch.Generator().manual_seed(n))[: n - 1] + 1
    first = torch.zeros(1, length, dtype=torch.long)
    first[0, cuts] = 1
    return first.cumsum(1)


class Layer:
    """An option at a length, with what it needs around it."""

    def __init__(
        self, length: int, fields: dict[str, Any], *, packed: int = 1, causal: bool = True
    ) -> None:
        dims = Dims(HEADS * WIDTH, HEADS, WIDTH, 1, length, 8)
        self.length, self.causal = length, causal
        self.mixer: Any = attention.build(attention.config(fields), dims.at(0))
        self.kernel = backend.build(backend.config("auto"), dims).pick(self.mixer.features)
        self.scheme = RoPE(RoPE.Config(), dims).for_heads(self.mixer.rotary_dim)
        if not causal:
            self.mixer.o, self.scheme = nn.Identity(), NoPosition(NoPosition.Config(), dims)
        self.positions = torch.arange(length)[None]
        self.packed = None if packed == 1 else documents(packed, length)
        self.x = torch.randn(1, length, dims.dim)

    def mask(self) -> Mask:
        """The mask of one step, lowered for the backend."""
        mask = Mask(self.length, self.length, causal=self.causal, documents=self.packed)
        if self.mixer.attends:
            self.kernel.prepare(self.mixer.narrow(mask), self.x)
        return mask

    def step(self) -> None:
        """One pass through the whole layer and back."""
        angles = self.scheme.prepare(self.positions)
        ctx = Context(self.mask(), self.positions, self.scheme, angles, self.kernel)
        self.mixer(self.x, ctx).sum().backward()

    def core(self) -> Callable[[], None]:
        """The same of the attention alone."""
        mixer = self.mixer
        q, k, v = (
            torch.randn(1, self.length, n, WIDTH).transpose(1, 2).requires_grad_()
            for n in (mixer.n_heads, mixer.n_kv_heads, mixer.n_kv_heads)
        )

        def step() -> None:
            mask = mixer.narrow(self.mask())
            self.kernel.attend(q, k, v, mask, scale=mixer.scale).sum().backward()

        return step


TABLES: dict[str, dict[str, Make]] = {
    "attention alone": {
        "full, causal": lambda n: Layer(n, {"name": "gqa"}).core(),
        "swa, window 512": lambda n: Layer(n, WINDOW).core(),
        "8 documents": lambda n: Layer(n, {"name": "gqa"}, packed=8).core(),
    },
    "causal layers": {
        "full (mha)": lambda n: Layer(n, {"name": "mha"}).step,
        "x-transformers, flash": peers.x_transformers,
        "swa, window 512": lambda n: Layer(n, WINDOW | {"n_kv_heads": HEADS}).step,
        "8 documents (mha)": lambda n: Layer(n, {"name": "mha"}, packed=8).step,
        "mla": lambda n: Layer(n, {"name": "mla"}).step,
        "differential": lambda n: Layer(n, {"name": "differential"}).step,
        "linear": lambda n: Layer(n, {"name": "linear"}).step,
        "longformer": lambda n: Layer(n, LONGFORMER).step,
        "bigbird": lambda n: Layer(n, BIGBIRD).step,
    },
    "layers that see both ways": {
        "full (mha)": lambda n: Layer(n, {"name": "mha"}, causal=False).step,
        "longformer": lambda n: Layer(n, LONGFORMER, causal=False).step,
        "transformers Longformer": peers.longformer,
        "bigbird": lambda n: Layer(n, BIGBIRD, causal=False).step,
        "transformers BigBird": peers.bigbird,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="2048,4096,8192")
    parser.add_argument("--rows", default="", help="words that a row's name must have one of")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="CPU time, for a busy machine")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.cpu else time.perf_counter
    words = [word for word in given.rows.split(",") if word]
    lengths = [int(n) for n in given.lengths.split(",")]
    for title, rows in TABLES.items():
        some = {
            name: make
            for name, make in rows.items()
            if not words or any(word in name for word in words)
        }
        if some:
            print(f"\n{title}")
            table(some, lengths, given.rounds, width=26, clock=clock)


if __name__ == "__main__":
    main()
