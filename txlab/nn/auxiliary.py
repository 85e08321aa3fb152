"""What a layer says beside its output: losses, figures for the log, how many tokens it sent where.

It travels up the stack as a value: nothing of it is kept in a module.
"""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Aux:
    """Auxiliary losses and figures of one layer, or of all layers together."""

    losses: dict[str, Tensor] = field(default_factory=dict)
    """Scalars by name, with their coefficients: means over tokens, summed over layers. An objective
    adds them to its loss once for every item it counts."""
    figures: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """For the log, each as (sum, count), without graph."""
    loads: tuple[Tensor, ...] = ()
    """Tokens routed to each expert [e], of each layer that moves a balancing bias by them."""

    def plus(self, other: "Aux") -> "Aux":
        """Both together, `other` being of the later layers."""
        losses, figures = dict(self.losses), dict(self.figures)
        for name, loss in other.losses.items():
            losses[name] = losses[name] + loss if name in losses else loss
        for name, (total, count) in other.figures.items():
            before = figures.get(name)
            pair = (total, count) if before is None else (before[0] + total, before[1] + count)
            figures[name] = pair
        return Aux(losses, figures, self.loads + other.loads)
