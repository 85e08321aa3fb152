"""The ranks that hold different rows of a batch, and what they add up."""

import io
from dataclasses import dataclass
from typing import Any

import torch
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

    def gathered(self, state: Any) -> list[Any]:
        """The `state` (containers, numbers, tensors) of every peer, on each of them."""
        if self.size == 1:
            return [state]
        buffer = io.BytesIO()
        torch.save(state, buffer)  # as bytes: tensors themselves do not travel well as objects
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, buffer.getvalue(), group=self.group)
        return [torch.load(io.BytesIO(data), weights_only=True) for data in found]


def sharded(trainer: Any) -> bool:
    """Whether no rank has all weights: then it takes all ranks to run the model."""
    return hasattr(trainer.strategy, "place")


def shares(trainer: Any) -> int:
    """Into how many shares `trainer` will cut a step's rows; known before the ranks have met."""
    return trainer.world_size // getattr(trainer.strategy, "tensor_parallel", 1)


def peers_of(trainer: Any) -> Peers:
    """The peers of this process under `trainer`'s strategy; alone without a trainer."""
    if trainer is None:
        return Peers()
    strategy = trainer.strategy
    made = getattr(strategy, "peers", None)
    return made() if made else Peers(trainer.global_rank, trainer.world_size, strategy)
