"""Attention as its definition says: every other backend is measured against this one."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from txlab.nn.backend.backend import Backend, backend
from txlab.nn.mask import Mask, Score


@backend("math")
class Math(Backend):
    """The definition (Vaswani et al. 2017, eq. 1), softmax in float32; any device, any feature."""

    @dataclass
    class Config(Backend.Config):
        """No fields: the definition has no choices."""

    supports = frozenset({"softcap", "score", "sink_logit", "dropout"})

    def prepare(self, mask: Mask, x: Tensor) -> None:
        if mask.plain != "full":
            mask.dense(x.device)

    def prepare_score(self, mask: Mask, score: Score, n_heads: int, x: Tensor) -> None:
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
        return softmax_attention(
            q,
            k,
            v,
            None if mask.plain == "full" else mask.dense(q.device),
            scale=scale,
            bias=None if score is None else mask.bias(score, q.shape[1], q.device),
            softcap=softcap,
            sink_logit=sink_logit,
            dropout=dropout,
        )


def softmax_attention(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b g s k"],
    v: Float[Tensor, "b g s v"],
    seen: Bool[Tensor, "#b #h t s"] | None,
    *,
    scale: float,
    bias: Float[Tensor, "#b h t s"] | None = None,
    softcap: float | None = None,
    sink_logit: Float[Tensor, "h"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b h t v"]:
    """`Backend.attend` with the mask and the score as tensors; `seen` None: all of it."""
    b, h, t, _ = q.shape
    g, s = k.shape[1], k.shape[2]
    grouped = q.reshape(b, g, h // g, t, -1)
    scores = (grouped @ k.unsqueeze(2).transpose(-1, -2)).reshape(b, h, t, s)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        # The smallest finite number, not -inf: a row of -inf would turn to NaN.
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    if sink_logit is not None:
        logit = sink_logit.to(scores.dtype).view(1, h, 1, 1).expand(b, h, t, 1)
        scores = torch.cat([scores, logit], -1)
    weights = scores.softmax(-1)[..., :s]
    if seen is not None:
        weights = weights.masked_fill(~seen, 0.0)
    weights = torch.dropout(weights.to(v.dtype), dropout, dropout > 0)
    return (weights.view(b, g, h // g, t, s) @ v.unsqueeze(2)).reshape(b, h, t, -1)
