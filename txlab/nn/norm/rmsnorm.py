"""RMSNorm."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.nn.norm.norm import Divides, Norm, norm


def rms_norm(
    x: Float[Tensor, "*b d"], weight: Float[Tensor, " d"] | None, eps: float
) -> Float[Tensor, "*b d"]:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis; float32 inside, x's dtype outside."""
    eager_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
    if eager_cpu and x.numel() > SMALL:
        return _RMSNorm.apply(x, weight, eps)
    if eager_cpu and x.dtype == torch.float32 and not torch.is_grad_enabled():
        # A token at a time: the mean of x and -x is 0 and their variance is x's mean square, so
        # LayerNorm's one kernel does it in 15 us, where torch's composite takes 50.
        y = F.layer_norm(torch.cat((x, -x), -1), (2 * x.shape[-1],), eps=eps)[..., : x.shape[-1]]
        return y if weight is None else y * weight
    if weight is None or weight.dtype == x.dtype:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    exact = torch.promote_types(x.dtype, weight.dtype)
    return F.rms_norm(x.to(exact), x.shape[-1:], weight.to(exact), eps).to(x.dtype)


SMALL = 8192
"""Elements up to which torch's own composite takes less time than the function below."""


class _RMSNorm(torch.autograd.Function):
    """`rms_norm` for the CPU, where torch 2.13 has no fused kernel.

    Forward and backward of 8 x 512 x 384 float32 on one core: 3.8 ms; torch's F.rms_norm 19.0 ms,
    x * rsqrt(mean(x^2) + eps) * weight by autograd 13.2 ms, F.layer_norm 2.8 ms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        scale = scale.square_().div_(y.shape[-1]).add_(eps).rsqrt_()
        out = y * scale
        if weight is not None:
            out *= weight
        ctx.save_for_backward(x, weight, scale)
        return out.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, scale = cast(tuple[Tensor, Tensor | None, Tensor], ctx.saved_tensors)
        y, grad = x.to(scale.dtype), grads[0].to(scale.dtype)
        w = None if weight is None else weight.to(scale.dtype)
        learns = ctx.needs_input_grad[1]
        # LayerNorm's kernel, told that the mean is 0, subtracts mean(grad * weight) * scale too,
        # the derivative by a mean that does not exist here: give that back.
        grad_x, grad_w, _ = torch.ops.aten.native_layer_norm_backward(
            grad, y, y.shape[-1:], torch.zeros_like(scale), scale, w, None, [True, learns, False]
        )
        excess = grad.mean(-1, keepdim=True) if w is None else (grad @ w).unsqueeze(-1) / len(w)
        grad_x = grad_x.add_(excess.mul_(scale)).to(x.dtype)
        return grad_x, None if weight is None or not learns else grad_w.to(weight.dtype), None


@norm("rmsnorm")
class RMSNorm(Norm):
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019); statistics in float32."""

    @dataclass
    class Config(Divides):
        """Fields of the RMS norm."""

        affine: bool = True
        """Learn a weight per channel."""
        offset: bool = False
        """Learn the weight as its distance from 1, which starts at 0 (Gemma Team 2024)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.affine or not self.offset, "offset", "false without affine")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.eps, self.offset = config.eps, config.offset
        self.weight = nn.Parameter(torch.empty(dims.dim)) if config.affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1 (its distance from 1: 0)."""
        if self.weight is not None:
            nn.init.constant_(self.weight, 0.0 if self.offset else 1.0)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        weight = self.weight
        if self.offset and weight is not None:
            # Not in bfloat16, which has no numbers near 1.
            weight = 1 + weight.to(torch.promote_types(weight.dtype, torch.float32))
        return rms_norm(x, weight, self.eps)
