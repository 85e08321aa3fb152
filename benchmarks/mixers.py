"""Time of one whole attention layer of each kind: training, and decoding on a cache of its own.

    python -m benchmarks.mixers [--lengths 1024,2048,4096] [--rows mha,mla,differential,linear]

Training is a forward and backward pass of one row of T tokens; decoding is one token behind T - 1
others. Projections and rotary positions are included; the shape is 8 heads of 64 channels. Rounds
are interleaved and figures are medians; `x` is the time over that of the first row. Bytes are the
cache's, of all T tokens.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from txlab.core.config import Dims
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.cache import Cache
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import RoPE

ROWS: dict[str, dict[str, Any]] = {
    "mha": {},
    "gqa": {},
    "mla": {},
    "differential": {},
    "linear": {},
}
HEADS, WIDTH = 8, 64


class Layer:
    """An option at a length, with what it needs around it."""

    def __init__(self, name: str, length: int) -> None:
        dims = Dims(HEADS * WIDTH, HEADS, WIDTH, 1, length, 8)
        self.length = length
        self.mixer = attention.build(attention.config({"name": name, **ROWS[name]}), dims.at(0))
        self.kernel = backend.build(backend.config("auto"), dims).pick(self.mixer.features)
        self.scheme = RoPE(RoPE.Config(), dims).for_heads(self.mixer.rotary_dim)
        self.x = torch.randn(1, length, dims.dim)
        self.cache = Cache([self.mixer.new_cache(1, length, self.x.device, self.x.dtype)], length)
        with torch.no_grad():
            self.run(self.x[:, :-1], *self.cache.place(1, length - 1, None, self.x.device), True)

    def run(self, x: torch.Tensor, mask: Mask, positions: torch.Tensor, cached: bool) -> Any:
        cache = self.cache.layers[0] if cached else None
        if self.mixer.attends:
            narrow = self.mixer.narrow(mask)
            self.kernel.prepare(narrow if cache is None else cache.shown(narrow), x)
        angles = self.scheme.prepare(positions)
        return self.mixer(x, Context(mask, positions, self.scheme, angles, self.kernel), cache)

    def train(self) -> None:
        positions = torch.arange(self.length)[None]
        self.run(self.x, Mask(self.length, self.length), positions, False).sum().backward()

    @torch.no_grad()
    def decode(self) -> None:
        """The last token, again and again: a cache takes it at its place, a state on top."""
        mask = Mask(1, self.length, q_index=self.length - 1)
        self.run(self.x[:, -1:], mask, torch.full((1, 1), self.length - 1), True)

    def bytes(self) -> int:
        """Size of the cache."""
        found = vars(self.cache.layers[0]).values()
        return sum(x.numel() * x.element_size() for x in found if isinstance(x, torch.Tensor))


def milliseconds(call: Callable[[], None], times: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of one attention layer of each kind.")
    parser.add_argument("--lengths", default="1024,2048,4096")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="CPU time, for a busy machine")
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    torch.set_num_threads(given.threads)
    rows = given.rows.split(",")
    print(f"{'length':>7} {'row':14} {'train ms':>9}     x  decode ms     x        bytes")
    for length in map(int, given.lengths.split(",")):
        layers = {name: Layer(name, length) for name in rows}
        train: dict[str, list[float]] = {name: [] for name in rows}
        decode: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(given.rounds + 1):
            for name, layer in layers.items():
                train[name].append(milliseconds(layer.train, 1, clock))
                decode[name].append(milliseconds(layer.decode, 10, clock))
        first = rows[0]
        for name, layer in layers.items():
            # The first round warms up.
            t, d = (statistics.median(found[name][1:]) for found in (train, decode))
            t0, d0 = (statistics.median(found[first][1:]) for found in (train, decode))
            print(
                f"{length:7} {name:14} {t:9.1f} {t / t0:5.2f} {d:10.3f} {d / d0:5.2f} "
                f"{layer.bytes():12,}"
            )


if __name__ == "__main__":
    main()
