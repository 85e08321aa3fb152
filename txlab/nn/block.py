"""One layer: residual branches around the stream, wired by the residual rule."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from txlab.nn.attention.mixer import Mixer
from txlab.nn.auxiliary import Aux
from txlab.nn.cache import LayerCache
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN
from txlab.nn.residual.residual import Residual


class Block(nn.Module):
    """`x, aux = block(x, ctx, cache)`: attention and feed-forward, each a residual branch."""

    def __init__(
        self, attn: Mixer, ffn: FFN, make_residual: Callable[[tuple[str, ...]], Residual]
    ) -> None:
        super().__init__()
        self.attn = attn
        self.ffn = ffn
        self.residual = make_residual(("attn", "ffn"))

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> tuple[Float[Tensor, "b t d"], Aux]:
        said = [Aux()]

        def attn(h: Tensor) -> Tensor:
            return self.attn(h, ctx, cache)

        def ffn(h: Tensor) -> Tensor:
            y = self.ffn(h, ctx)
            if isinstance(y, tuple):
                said.append(y[1])
                return y[0]
            return y

        return self.residual(x, {"attn": attn, "ffn": ffn}), said[-1]
