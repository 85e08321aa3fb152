"""Grouped attention that insists on the fused kernel."""

from dataclasses import dataclass

from txlab.nn.attention.heads import GQA
from txlab.nn.attention.mixer import attention
from txlab.nn.backend.backend import Backend
from txlab.nn.position.position import Position


@attention("flash")
class FlashAttention(GQA):
    """FlashAttention (Dao et al. 2022, 2023): grouped heads, computed by the fused kernel or not
    at all.

    Whatever would make a kernel hold the scores of all pairs is refused at build. `gqa` is the
    same function without that promise; testing/online_softmax.py shows how the kernel streams.
    """

    @dataclass
    class Config(GQA.Config):
        """No further fields."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(
                self.softcap is None, "softcap", "null: the fused kernel has no cap (gqa has)"
            )

    @property
    def features(self) -> frozenset[str]:
        return super().features | {"fused"}

    def refuse(self, position: Position, backend: Backend) -> str | None:
        if "fused" not in backend.supports:
            return (
                f"it pins the fused kernel, and model.backend={backend.name} is none: use "
                "model.backend=auto or flash, or model.attn=gqa"
            )
        if position.scores:
            return (
                f"model.pos={position.name} adds a bias to the scores, which the fused kernel has "
                "no place for: use model.pos=rope, or model.attn=gqa"
            )
        if self.dropout:
            return (
                f"dropout={self.dropout:g}, and the fused kernel has none: set "
                "model.attn.dropout=0, or use model.attn=gqa"
            )
        return None
