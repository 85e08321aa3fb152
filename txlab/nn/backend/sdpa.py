"""PyTorch's fused scaled-dot-product attention."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from txlab.nn.backend.backend import Backend, backend
from txlab.nn.mask import Mask, Score


@backend("sdpa")
class SDPA(Backend):
    """PyTorch's `scaled_dot_product_attention`: FlashAttention (Dao 2023) where it runs."""

    @dataclass
    class Config(Backend.Config):
        """No fields: PyTorch chooses the kernel."""

    supports = frozenset({"score"})

    def prepare(self, mask: Mask, x: Tensor) -> None:
        if mask.plain is None:
            visible(mask, x.device)

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
        heads = q.shape[1]
        if q.shape[2] == 1 and score is None:
            # One token: the heads of a group are so many queries of their key head, all with the
            # same mask. No repeated keys; 8 rows of 4 heads on 1 take 27 us, by enable_gqa 64.
            q = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        causal, dense = False, None
        if score is None and mask.plain is not None:
            causal = mask.plain == "causal"
        else:
            dense = visible(mask, q.device)
            if score is not None:
                bias = mask.bias(score, q.shape[1], q.device)
                dense = bias.masked_fill(~dense, float("-inf")).to(q.dtype)
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=dense,
            dropout_p=dropout,
            is_causal=causal,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        if mask.may_blind:
            y = y * mask.dense(q.device).any(-1, keepdim=True)
        return y.reshape(y.shape[0], heads, -1, y.shape[3])


def visible(mask: Mask, device: torch.device) -> Bool[Tensor, "b 1 q k"]:
    """The dense mask, with queries that see nothing seeing everything: kernels differ on those, so
    they never meet one; the caller zeroes these rows."""
    dense = mask.dense(device)
    return dense | ~dense.any(-1, keepdim=True) if mask.may_blind else dense
