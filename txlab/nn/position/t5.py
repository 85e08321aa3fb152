"""T5's relative positions: a learned bias per head and bucket of distances."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.position.position import Position, position


@position("t5")
class T5(Position):
    """Score plus a learned bias of the head and the distance's bucket (Raffel et al. 2020).

    The first half of the buckets holds one distance each, the others grow geometrically up to
    `max_distance`; everything beyond shares the last one, so there is no last position. One table
    serves all layers, as in T5. A bias that learns costs speed: fused kernels give it no gradient,
    so attention materialises scores of query times key.
    """

    @dataclass
    class Config(Position.Config):
        """Fields of the buckets."""

        n_buckets: int = 32
        """Rows of the table of biases."""
        max_distance: int = 128
        """Distance in tokens from which on all share the last bucket."""
        bidirectional: bool = False
        """Half of the buckets for keys after the query (encoders); False: those count as 0 away."""

        def __post_init__(self) -> None:
            least = 4 if self.bidirectional else 2
            self.require(
                self.n_buckets >= least and not (self.bidirectional and self.n_buckets % 2),
                "n_buckets",
                f"at least {least}" + (", and an even number" if self.bidirectional else ""),
            )
            exact = self.n_buckets // (4 if self.bidirectional else 2)
            self.require(
                self.max_distance > exact,
                "max_distance",
                f"more than the {exact} distances that have a bucket each",
            )

    scores: ClassVar[bool] = True

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.config = config
        self.table = nn.Embedding(config.n_buckets, dims.n_heads)
        self.register_buffer("buckets", None, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Make the constant table of buckets, for distances from -max_distance to max_distance."""
        most = self.config.max_distance
        # On the CPU and once: a compiler's logarithm may fall on the other side of a border.
        back = torch.arange(-most, most + 1, device="cpu")
        self.buckets = bucket(back, self.config).to(self.table.weight.device)

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        most = self.config.max_distance
        # First by distance, of which there are few: twice as fast as by query and key at once.
        return self.table.weight[self.buckets][(q - k).clamp(-most, most) + most, h]


def bucket(back: Int[Tensor, "*n"], config: T5.Config) -> Int[Tensor, "*n"]:
    """Bucket of a key `back` tokens before the query (negative: after it)."""
    n = config.n_buckets // 2 if config.bidirectional else config.n_buckets
    distance = back.abs() if config.bidirectional else back.clamp(min=0)
    exact = n // 2
    # In float32, which decides as T5's own code does on which side of a border a distance falls.
    grown = torch.log(distance.clamp(min=1).float() / exact)
    grown = grown / math.log(config.max_distance / exact) * (n - exact)
    found = torch.where(distance < exact, distance, (exact + grown.long()).clamp(max=n - 1))
    return found + (back < 0) * n if config.bidirectional else found
