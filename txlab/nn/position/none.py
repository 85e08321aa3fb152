"""No positional scheme: a causal mask alone tells order."""

from typing import ClassVar

from txlab.nn.position.position import Position, position


@position("none")
class NoPosition(Position):
    """Nothing is added; causal attention still learns order from its mask (Haviv et al. 2022)."""

    exempt: ClassVar[dict[str, str]] = {
        "tells_order": "there are no positions: order comes from the causal mask alone",
        "works_inside_attention": "there are no positions that could change the output",
    }
