"""The slot of positional schemes: where and how a model learns the order of its tokens."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.errors import RequestError
from txlab.core.slot import Slot


class Position(nn.Module):
    """At most three sites, identity by default: `embed`, `rotate`, `score`."""

    @dataclass
    class Config(Component):
        """Fields shared by all positional schemes."""

    scores: ClassVar[bool] = False
    """True where `score` adds a bias to the attention scores."""
    rotates: ClassVar[bool] = False
    """True where `rotate` turns queries and keys."""
    latent_gain: float = 1.0
    """What latent attention, whose heads turn in part, multiplies all scores by."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__()
        self.name = config.name
        self.config, self.dims = config, dims

    def for_heads(self, head_dim: int) -> "Position":
        """This scheme for heads of another width (latent attention turns a part of each head);
        itself where nothing is turned. RequestError where the rotation has parameters."""
        if not self.rotates or head_dim == self.dims.head_dim:
            return self
        other = type(self)(self.config, replace(self.dims, head_dim=head_dim))
        if next(other.parameters(), None) is not None:
            raise RequestError(
                f"model.pos={self.name} has parameters for heads of {self.dims.head_dim} channels, "
                f"but this option of model.attn turns {head_dim}: use model.pos=rope."
            )
        return other

    def limit(self) -> int | None:
        """Number of positions this scheme has; None where it has no end."""
        return None

    def prepare(self, positions: Int[Tensor, "#b t"]) -> Any:
        """What `rotate` needs, made once a forward pass; the positions themselves by default."""
        return positions

    def embed(
        self, x: Float[Tensor, "b t d"], positions: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        """Token embeddings with the position added."""
        return x

    def rotate(
        self, q: Float[Tensor, "b h t k"], k: Float[Tensor, "b g t k"], angles: Any
    ) -> tuple[Float[Tensor, "b h t k"], Float[Tensor, "b g t k"]]:
        """Queries and keys with the position turned in; `angles` comes from `prepare`."""
        return q, k

    def score(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Bias for head h between query index q and key index k; broadcastable index tensors."""
        raise NotImplementedError(f"{type(self).__name__} adds no bias to scores")


position = Slot("model.pos", Position, doc="How tokens know their order.")
