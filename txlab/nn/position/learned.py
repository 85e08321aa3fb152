"""Learned absolute positions."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.position.position import Position, position


@position("learned")
class Learned(Position):
    """A learned vector per position, added to the embeddings (Radford et al. 2019, GPT-2).

    There are `context` of them and none beyond: `limit()` says so, the model refuses longer input.
    """

    @dataclass
    class Config(Position.Config):
        """No fields: the number of positions is the model's `context`."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.table = nn.Embedding(dims.context, dims.dim)

    def limit(self) -> int:
        return self.table.num_embeddings

    def embed(
        self, x: Float[Tensor, "b t d"], positions: Int[Tensor, "#b t"]
    ) -> Float[Tensor, "b t d"]:
        return x + self.table(positions)
