"""One layer: residual branches around the stream, wired by the residual rule."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.nn.attention.cross import BranchCaches, CrossAttention
from txlab.nn.attention.mixer import Mixer
from txlab.nn.auxiliary import Aux
from txlab.nn.cache import LayerCache
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN
from txlab.nn.residual.residual import Residual


class Block(nn.Module):
    """`x, aux = block(x, ctx, cache)`: attention, cross-attention where there is a memory to read,
    and feed-forward, each a residual branch."""

    def __init__(
        self,
        attn: Mixer,
        ffn: FFN,
        make_residual: Callable[[tuple[str, ...]], Residual],
        cross: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        self.attn = attn
        self.cross = cross
        self.ffn = ffn
        self.residual = make_residual(
            ("attn", "ffn") if cross is None else ("attn", "cross", "ffn")
        )

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        """Empty decoding state for `batch` rows of at most `length` tokens."""
        own = self.attn.new_cache(batch, length, device, dtype)
        if self.cross is None:
            return own
        return BranchCaches(own, self.cross.new_cache(batch, length, device, dtype))

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> tuple[Float[Tensor, "b t d"], Aux]:
        said, own, memory, reads = [Aux()], cache, None, self.cross
        if isinstance(cache, BranchCaches):
            own, memory = cache.own, cache.cross

        def attn(h: Tensor) -> Tensor:
            return self.attn(h, ctx, own)

        def ffn(h: Tensor) -> Tensor:
            y = self.ffn(h, ctx)
            if isinstance(y, tuple):
                said.append(y[1])
                return y[0]
            return y

        if reads is None:
            branches = {"attn": attn, "ffn": ffn}
        else:
            branches = {"attn": attn, "cross": lambda h: reads(h, ctx, memory), "ffn": ffn}
        return self.residual(x, branches), said[-1]
