"""A head whose rows, one a token of the vocabulary, are cut over ranks (Megatron-LM, section 3)."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from txlab.nn.collectives import total


@dataclass(frozen=True)
class Share:
    """Which rows of the head this rank holds, and how the ranks put their figures together."""

    start: int
    """The first token among them."""
    rows: int
    size: int
    """Tokens of the whole vocabulary."""
    mesh: DeviceMesh

    def find(self, labels: Int[Tensor, "n 1"]) -> tuple[Tensor, Tensor]:
        """Where in this share each label is (any place for those that are not), and whether."""
        own = labels - self.start
        there = (own >= 0) & (own < self.rows)
        return own.where(there, 0), there

    def sum(self, *figures: Tensor) -> tuple[Tensor, ...]:
        """The sums of some figures of one shape over all ranks, in one exchange."""
        return total(torch.stack(figures), self.mesh).unbind()

    def max(self, figure: Tensor) -> Tensor:
        return total(figure, self.mesh, "max")


def share_of(weight: Tensor) -> tuple[Tensor, Share | None]:
    """The rows of a head [v d] that lie on this rank, and their place; None: they are all here."""
    if not isinstance(weight, DTensor):
        return weight, None
    own, mesh = weight.to_local(), weight.device_mesh
    return own, Share(mesh.get_local_rank() * len(own), len(own), len(weight), mesh)
