"""The rotation of channel pairs: angles, and the fastest way to apply them that torch offers."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Angles = tuple[Tensor, Tensor]
"""cos and signed sin [b 1 t k] in float32, times the gain of the channels that turn; those that do
not have cos 1 and sin 0."""


def inverse_frequencies(channels: int, theta: float, device: torch.device) -> Float[Tensor, " f"]:
    """theta^(-2i / channels) for each pair i of channels, in float32."""
    exponents = torch.arange(0, channels, 2, dtype=torch.float32, device=device) / -channels
    return torch.pow(theta, exponents)


def rotation(
    positions: Int[Tensor, "#b t"],
    frequencies: Float[Tensor, " f"],
    *,
    rest: int = 0,
    interleaved: bool = False,
    gain: float = 1.0,
) -> Angles:
    """Angles of position times frequency for heads of 2 f + `rest` channels, in float32.

    Turned channels grow by `gain`, the rest does not. Pairs are (i, i + f), or (2i, 2i + 1) when
    interleaved. The sine carries the sign of its channel: cos is even and sin is odd, so negated
    frequencies give it.
    """
    join = torch.stack if interleaved else torch.cat
    signed = join((-frequencies, frequencies), dim=-1).flatten()
    if rest:
        signed = torch.cat((signed, signed.new_zeros(rest)))
    angles = (positions.unsqueeze(-1).float() * signed).unsqueeze(1)
    if gain == 1:
        return angles.cos(), angles.sin()
    gains = torch.full_like(signed, gain)
    gains[len(signed) - rest :] = 1
    return angles.cos() * gains, angles.sin() * gains


def turn(
    x: Float[Tensor, "b h t k"], angles: Angles, channels: int, interleaved: bool = False
) -> Float[Tensor, "b h t k"]:
    """x with the pairs of its first `channels` channels turned by `angles` (in x's dtype)."""
    cos, sin = angles
    if x.shape[-2] > 1 and not torch.compiler.is_compiling():
        return _Turn.apply(x, cos, sin, channels, interleaved, 1)
    # Fewest operations for a single token, and what a compiler fuses best.
    if channels == x.shape[-1]:
        return torch.addcmul(x * cos, _partner(x, interleaved), sin)
    head, tail = x.split((channels, x.shape[-1] - channels), dim=-1)
    cos, sin = cos[..., :channels], sin[..., :channels]
    return torch.cat((torch.addcmul(head * cos, _partner(head, interleaved), sin), tail), dim=-1)


def _partner(x: Float[Tensor, "b h t c"], interleaved: bool) -> Float[Tensor, "b h t c"]:
    """Each channel's other half of its pair."""
    if interleaved:
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x.roll(x.shape[-1] // 2, -1)


class _Turn(torch.autograd.Function):
    """`turn` without temporaries; only the angles are saved.

    Its gradient is the opposite turn, of the same gain.
    q and k of 8 x 512 tokens, 6 + 2 heads of 64, forward and backward on one CPU core: 7.2 ms in
    float32 and 5.8 ms in bfloat16; with chunk and cat 14.7 to 17.7 ms and 7.7 to 9.7 ms.
    """

    @staticmethod
    def forward(
        x: Tensor, cos: Tensor, sin: Tensor, channels: int, interleaved: bool, sign: int
    ) -> Tensor:
        if interleaved:
            a, b = slice(0, channels, 2), slice(1, channels, 2)
        else:
            a, b = slice(0, channels // 2), slice(channels // 2, channels)
        out = x * cos
        out[..., a].addcmul_(x[..., b], sin[..., a], value=sign)
        out[..., b].addcmul_(x[..., a], sin[..., b], value=sign)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, cos, sin, *ctx.rest = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        channels, interleaved, sign = ctx.rest
        return _Turn.apply(grads[0], cos, sin, channels, interleaved, -sign), *[None] * 5
