"""Attention as its definition says: every other backend is measured against this one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.nn.backend.backend import Backend, backend
from txlab.nn.mask import Mask, Score


@backend("math")
class Math(Backend):
    """The definition (Vaswani et al. 2017, eq. 1), softmax in float32; any device, any feature."""

    @dataclass
    class Config(Backend.Config):
        """No fields: the definition has no choices."""

    supports = frozenset({"softcap", "score"})

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
        dropout: float = 0.0,
    ) -> Float[Tensor, "b h t v"]:
        b, h, t, _ = q.shape
        g, s = k.shape[1], k.shape[2]
        grouped = q.reshape(b, g, h // g, t, -1)
        scores = (grouped @ k.unsqueeze(2).transpose(-1, -2)).reshape(b, h, t, s)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if score is not None:
            scores = scores + mask.bias(score, h, q.device)
        if mask.plain == "full":
            weights = scores.softmax(-1)
        else:
            hidden = ~mask.dense(q.device)
            # The smallest finite number, not -inf: a row of -inf would turn to NaN.
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
            weights = scores.softmax(-1).masked_fill(hidden, 0.0)
        weights = torch.dropout(weights.to(v.dtype), dropout, dropout > 0)
        return (weights.view(b, g, h // g, t, s) @ v.unsqueeze(2)).reshape(b, h, t, -1)
