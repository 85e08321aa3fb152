"""No positional scheme: a causal mask alone tells order."""

from txlab.nn.position.position import Position, position


@position("none")
class NoPosition(Position):
    """Nothing is added; causal attention still learns order from its mask (Haviv et al. 2022)."""
