"""Sliding-window attention: each layer looks a fixed way back, layers together farther."""

from dataclasses import dataclass, replace

from txlab.core.config import Dims
from txlab.nn.attention.heads import GQA
from txlab.nn.attention.mixer import attention


@attention("swa")
class SWA(GQA):
    """Sliding-window attention on grouped heads (Beltagy et al. 2020; Mistral, Jiang et al. 2023).

    Layers carry what they saw: L of them reach L * (window - 1) tokens back. The cache is a ring
    of `window` tokens (and the sinks), whatever the length of the text.
    """

    @dataclass
    class Config(GQA.Config):
        """Fields of sliding-window attention."""

        window: int | None = None
        """Each token sees itself and the `window - 1` before it; None: half the model's context."""

        def windowed(self) -> bool:
            return True

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(replace(config, window=self.width(config, dims)), dims)

    @staticmethod
    def width(config: Config, dims: Dims) -> int:
        """The window: half the context where the config leaves it open."""
        return max(1, dims.context // 2) if config.window is None else config.window
