"""What all layers of one forward pass share: built once, passed down, never stored."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from txlab.nn.backend.backend import Backend
from txlab.nn.mask import Mask
from txlab.nn.position.position import Position


@dataclass(frozen=True, eq=False)
class Context:
    """Mask, positions and the parts that attention needs from outside of itself."""

    mask: Mask
    positions: Int[Tensor, "#b t"]
    """Position of each token within its document; batch axis 1 where rows agree."""
    position: Position
    """The layer's positional scheme."""
    angles: Any
    """What `position.prepare(positions)` made for this forward pass."""
    backend: Backend
    memory: Float[Tensor, "b s d"] | None = None
    """Encoder states for cross-attention."""
    memory_mask: Mask | None = None

    def rotate(
        self, q: Float[Tensor, "b h t k"], k: Float[Tensor, "b g t k"]
    ) -> tuple[Float[Tensor, "b h t k"], Float[Tensor, "b g t k"]]:
        """Queries and keys turned by the positional scheme (themselves where it does not turn)."""
        return self.position.rotate(q, k, self.angles)
