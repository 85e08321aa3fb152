"""No norm."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from txlab.nn.norm.norm import Norm, norm

_SAME = "there is no norm: the output is the input"


@norm("none")
class NoNorm(Norm):
    """Leaves every vector as it is; deep stacks then need a residual rule and init that bear it."""

    exempt: ClassVar[dict[str, str]] = dict.fromkeys(
        ("does_something", "not_linear", "forgets_scale", "starts_at_unit_scale"), _SAME
    )

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return x
