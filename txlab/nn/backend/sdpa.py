"""PyTorch's fused scaled-dot-product attention."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from txlab.nn.backend.backend import Backend, backend
from txlab.nn.mask import Mask, Score

ALIGN = 8
"""Channels that an extra key takes: fused kernels want a multiple of it."""


@backend("sdpa")
class SDPA(Backend):
    """PyTorch's `scaled_dot_product_attention`: FlashAttention (Dao 2023) where it runs."""

    @dataclass
    class Config(Backend.Config):
        """No fields: PyTorch chooses the kernel."""

    supports = frozenset({"score", "sink_logit", "dropout"})

    def prepare(self, mask: Mask, x: Tensor) -> None:
        if mask.plain is None:
            visible(mask, x.device)

    def prepare_score(self, mask: Mask, score: Score, n_heads: int, x: Tensor) -> None:
        visible(mask, x.device)
        mask.bias(score, n_heads, x.device)

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        *,
        scale: float,
        score: Score | None = None,
        softcap: float | None = None,
        sink_logit: Float[Tensor, "h"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "b h t v"]:
        plain = mask.plain if score is None else None
        y = fused_attention(
            q,
            k,
            v,
            None if plain else visible(mask, q.device),
            causal=plain == "causal",
            scale=scale,
            bias=None if score is None else mask.bias(score, q.shape[1], q.device),
            sink_logit=sink_logit,
            dropout=dropout,
        )
        return y * mask.dense(q.device).any(-1, keepdim=True) if mask.may_blind else y


def visible(mask: Mask, device: torch.device) -> Bool[Tensor, "b 1 q k"]:
    """The dense mask, with queries that see nothing seeing everything: kernels differ on those, so
    they never meet one; the caller zeroes these rows."""
    dense = mask.dense(device)
    return dense | ~dense.any(-1, keepdim=True) if mask.may_blind else dense


def fused_attention(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b g s k"],
    v: Float[Tensor, "b g s v"],
    seen: Bool[Tensor, "#b #h t s"] | None,
    *,
    causal: bool = False,
    scale: float,
    bias: Float[Tensor, "#b h t s"] | None = None,
    sink_logit: Float[Tensor, "h"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h t v"]:
    """`Backend.attend` by PyTorch's kernel, with the mask and the score as tensors.

    Every query sees a key in `seen`; None: all of them, or with `causal` those up to its own.
    """
    heads, width = q.shape[1], v.shape[-1]
    if width != q.shape[-1]:
        # The fused kernels want values as wide as keys; without, all scores would be held.
        wide = max(width, q.shape[-1])
        q, k, v = (F.pad(x, (0, wide - x.shape[-1])) for x in (q, k, v))
    if sink_logit is not None:
        q, k, v = with_sink(q, k, v, sink_logit / scale)
        seen = None if seen is None else F.pad(seen, (1, 0), value=True)
        bias = None if bias is None else F.pad(bias, (1, 0))
        if causal:
            q = F.pad(q, (0, 0, 1, 0))
    if q.shape[2] == 1 and bias is None:
        # One token: the heads of a group are so many queries of their key head, all with the
        # same mask. No repeated keys; 8 rows of 4 heads on 1 take 27 us, by enable_gqa 64.
        q = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
    if bias is not None and seen is not None:
        bias = bias.masked_fill(~seen, float("-inf"))
    y = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=seen if bias is None else bias.to(q.dtype),
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    y = y.reshape(y.shape[0], heads, -1, y.shape[3])[..., :width]
    return y[:, :, 1:] if causal and sink_logit is not None else y


def with_sink(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b g s k"],
    v: Float[Tensor, "b g s v"],
    score: Float[Tensor, "h"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with a first key of value zero, whose product with each head's
    queries is `score`: a channel that holds the score in the queries, 1 in that key, 0 in others.
    No kernel has to know, and the score's gradient is the queries'.
    """
    b, h, t, _ = q.shape
    column = score.to(q.dtype).view(1, h, 1, 1).expand(b, h, t, 1)
    sink = F.pad(k.new_ones(b, k.shape[1], 1, 1), (k.shape[-1], ALIGN - 1))
    return (
        torch.cat([q, F.pad(column, (0, ALIGN - 1))], -1),
        torch.cat([sink, F.pad(k, (0, ALIGN))], 2),
        F.pad(v, (0, ALIGN, 1, 0)),
    )
