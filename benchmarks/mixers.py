"""Time of one token through a whole attention layer of each kind, on a cache of its own.

    python -m benchmarks.mixers [--lengths 1024,4096] [--rows mha,mla,linear] [--cpu --threads 1]

The token stands behind T - 1 others; benchmarks/attention.py has passes forward and backward.
Projections and rotary positions are included; the shape is 8 heads of 64 channels. Rounds are
interleaved and figures are medians; `x` is the time over that of the first row. Bytes are the
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
from txlab.nn.cache import Cache, LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import RoPE

ROWS: dict[str, dict[str, Any]] = {
    "mha": {},
    "gqa": {},
    "mla": {},
    "differential": {},
    "linear": {},
    "swa": {"window": 512},
    "longformer": {"window": 257},
    "bigbird": {},
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

    @torch.no_grad()
    def decode(self) -> None:
        """The last token, again and again: a cache takes it at its place, a state on top."""
        mask = Mask(1, self.length, q_index=self.length - 1)
        self.run(self.x[:, -1:], mask, torch.full((1, 1), self.length - 1), True)

    def bytes(self) -> int:
        """Size of the cache."""
        return size_of(self.cache.layers[0])


def size_of(cache: LayerCache) -> int:
    """Bytes of its tensors, and of the caches inside it."""
    parts = vars(cache).values()
    own = sum(x.numel() * x.element_size() for x in parts if isinstance(x, torch.Tensor))
    return own + sum(size_of(x) for x in parts if isinstance(x, LayerCache))


def milliseconds(call: Callable[[], None], times: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="1024,2048,4096")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="CPU time, for a busy machine")
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    torch.set_num_threads(given.threads)
    rows = given.rows.split(",")
    print(f"{'length':>7} {'row':14} {'ms a token':>10}     x        bytes")
    for length in map(int, given.lengths.split(",")):
        layers = {name: Layer(name, length) for name in rows}
        times: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(given.rounds + 1):
            for name, layer in layers.items():
                times[name].append(milliseconds(layer.decode, 10, clock))
        # The first round warms up.
        medians = {name: statistics.median(found[1:]) for name, found in times.items()}
        for name, layer in layers.items():
            share = medians[name] / medians[rows[0]]
            print(f"{length:7} {name:14} {medians[name]:10.3f} {share:5.2f} {layer.bytes():12,}")


if __name__ == "__main__":
    main()
