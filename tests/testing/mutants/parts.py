"""Broken norms, feed-forward layers and residual rules."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.testing.mutant import caught_by
from txlab.core.config import Dims
from txlab.nn.ffn import MLP
from txlab.nn.norm import Norm, RMSNorm
from txlab.nn.residual import Pre


@caught_by("position_wise", "beside a changed one")
class NormOverTheSequence(RMSNorm):
    """The mean square runs over tokens as well."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean((-2, -1), keepdim=True) + 1e-5).rsqrt() * self.weight


@caught_by("does_something", "output against input")
@caught_by("forgets_scale", "output for 10x")
@caught_by("starts_at_unit_scale", "inputs of size 0.1")
@caught_by("not_linear", "twice the output")
class NormsNothing(Norm):
    """The identity."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@caught_by("finite_at_the_edges", "inputs of size 0")
class NoEpsilon(RMSNorm):
    """Divides by the bare root mean square."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.square().mean(-1, keepdim=True).sqrt() * self.weight


@caught_by("keeps_statistics_exact", "output in bfloat16")
class SumsInLowPrecision(RMSNorm):
    """The mean square is summed up one by one in the input's own precision."""

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[..., :1])
        for part in x.square().split(1, -1):
            total = total + part
        return x * (total / x.shape[-1] + 1e-5).rsqrt() * self.weight


@caught_by("keeps_shape_and_dtype", "a torch.bfloat16 module returns torch.float32")
class ReturnsFloat32(RMSNorm):
    """Leaves the dtype of its statistics."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).float() if x.dtype == torch.bfloat16 else super().forward(x)


@caught_by("finite_under_autocast", "not finite")
class OverflowsInHalf(RMSNorm):
    """A detour that only fits float32."""

    def forward(self, x: Tensor) -> Tensor:
        eye = torch.eye(x.shape[-1], dtype=x.dtype) * 1e-30
        y = super().forward(x) @ eye
        return y * 1e30 if y.dtype == x.dtype else (y / 0.0).to(x.dtype)


@caught_by("position_wise", "beside a changed one")
class MixesTokens(MLP):
    """Adds the mean of the row."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return super().forward(x + x.mean(1, keepdim=True), ctx)


@caught_by("not_linear", "twice the output")
class HasNoNonlinearity(MLP):
    """Two linear layers, one after the other."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return self.down(self.up(x))


@caught_by("does_something", "output against zero")
class StartsAtNothing(MLP):
    """Its output is multiplied by a number that stays 0."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return 0 * super().forward(x, ctx)


@caught_by("finite_at_the_edges", "inputs of size 1000")
class Overflows(MLP):
    """An exponential that a token of large numbers takes past the end of float32."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return super().forward(x.exp(), ctx)


@caught_by("every_parameter_learns", "part.gain gets no gradient")
class HasADeadParameter(MLP):
    """A parameter nobody reads."""

    def __init__(self, config: MLP.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.gain = nn.Parameter(torch.ones(dims.dim))


@caught_by("deterministic", "depends on an earlier call")
class ThrowsDice(MLP):
    """Dropout that never sleeps."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return F.dropout(super().forward(x, ctx), 0.5, training=True)


@caught_by("leaves_its_input_alone", "changed in place")
class WritesToItsInput(MLP):
    """Works in place."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return super().forward(x.mul_(0.5), ctx)


@caught_by("state_survives_saving", "buffers in the state dict: part.calls")
class CountsItsCalls(MLP):
    """Keeps state."""

    def __init__(self, config: MLP.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.register_buffer("calls", torch.zeros(()))


@caught_by("deep_copies", "after its copy was changed")
class SharesItsWeights(MLP):
    """A copy is the same object."""

    def __deepcopy__(self, memo: object) -> "SharesItsWeights":
        return self


@caught_by("compiles", "")
class BreaksTheGraph(MLP):
    """Asks a tensor for a number."""

    def forward(self, x: Tensor, ctx: Any = None) -> Tensor:
        return super().forward(x, ctx) * (2.0 if float(x.sum()) > 0 else 1.0)


@caught_by("builds_on_meta", "made in memory all the same: part.table")
class IgnoresTheDevice(MLP):
    """Makes a parameter on the CPU, whatever was asked for."""

    def __init__(self, config: MLP.Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.table = nn.Parameter(torch.zeros(dims.dim, device="cpu"))


@caught_by("says_what_it_is", "no docstring")
class SaysNothing(MLP):
    pass


@caught_by("names_itself", "'somebody'")
class TakesAnotherName(MLP):
    """Renames its config."""

    class Config(MLP.Config):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.name = "somebody"


@caught_by("every_branch_counts", "branch attn times 0")
class DropsABranch(Pre):
    """Only the last branch reaches the stream."""

    def forward(self, x: Tensor, branches: dict[str, Any]) -> Tensor:
        for name, branch in branches.items():
            y = x + branch(self.norms[name](x))
        return y


@caught_by("the_stream_passes", "the stream is lost")
class LosesTheStream(Pre):
    """Branches without the addition."""

    def forward(self, x: Tensor, branches: dict[str, Any]) -> Tensor:
        for name, branch in branches.items():
            x = branch(self.norms[name](x))
        return x


@caught_by("deep_stack_is_finite", "times those of layer 23")
class Explodes(Pre):
    """Each branch multiplies the stream."""

    def forward(self, x: Tensor, branches: dict[str, Any]) -> Tensor:
        return 3 * super().forward(x, branches)


@caught_by("each_branch_runs_once", "branches ran as ['attn', 'ffn', 'attn', 'ffn']")
class RunsTwice(Pre):
    """Every branch twice."""

    def forward(self, x: Tensor, branches: dict[str, Any]) -> Tensor:
        return super().forward(super().forward(x, branches), branches)


@caught_by("serves_any_branches", "output without branch cross")
class KnowsTwoNames(Pre):
    """Names of branches are built in."""

    def forward(self, x: Tensor, branches: dict[str, Any]) -> Tensor:
        return super().forward(x, {name: branches[name] for name in ("attn", "ffn")})


@caught_by("drops_in_training_only", "")
@caught_by("drops_whole_rows", "in training")
@caught_by("scales_each_branch", "branch with layer_scale=0.25")
class NeverDrops(Pre):
    """Dropout is ignored."""

    def leave(self, name: str, y: Tensor) -> Tensor:
        return y


@caught_by("drops_whole_rows", "part of a row")
class DropsTokens(Pre):
    """Stochastic depth draws for each token."""

    def _kept(self, y: Tensor) -> Tensor:
        return super()._kept(y.flatten(0, 1)[:, None]).view(*y.shape[:2], 1)


@caught_by("drops_whole_rows", "mean")
class LosesSize(Pre):
    """Rows that stay are not scaled up."""

    def _kept(self, y: Tensor) -> Tensor:
        return super()._kept(y).ceil().clamp(max=1)


@caught_by("drops_more_with_depth", "layer 0")
class DropsAlikeEverywhere(Pre):
    """The last layer's share in all layers."""

    def __init__(self, config: Pre.Config, dims: Dims, **parts: Any) -> None:
        super().__init__(config, dims, **parts)
        self.drop_path = config.drop_path
