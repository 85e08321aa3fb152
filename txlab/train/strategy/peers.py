"""The ranks that hold different rows of a batch, and what they add up."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Peers:
    """A rank's place among those with other rows than its own.

    Ranks that share a layer's work have the same rows, so they count once: `size` is the number of
    shares a step's batch is cut into, not the number of processes.
    """

    rank: int = 0
    size: int = 1
    strategy: Any = None
    """Lightning's strategy, which reduces."""
    group: Any = None
    """The process group of the peers; None: all ranks."""

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of `tensor` over all peers, on each of them; may be made in place."""
        if self.size == 1:
            return tensor
        return self.strategy.reduce(tensor, group=self.group, reduce_op="sum")


def peers_of(trainer: Any) -> Peers:
    """The peers of this process under `trainer`'s strategy; alone without a trainer."""
    if trainer is None:
        return Peers()
    strategy = trainer.strategy
    made = getattr(strategy, "peers", None)
    return made() if made else Peers(trainer.global_rank, trainer.world_size, strategy)
