"""Low-rank adaptation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txlab.core.errors import RequestError
from txlab.nn.adapter.adapter import adapter
from txlab.nn.adapter.injected import Injected


@adapter("lora")
class LoRA(Injected):
    """Adds alpha / r B A to each weight, A [r in] and B [out r] trained (Hu et al. 2021)."""

    @dataclass
    class Config(Injected.Config):
        """Fields of low-rank adaptation."""

        r: int = 8
        """Rank of the update."""
        alpha: float = 16.0
        """The update is scaled by alpha / r."""
        dropout: float = 0.0
        """Dropout of the adapter's input, in training only."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.r > 0, "r", "a rank above 0")
            self.require(self.alpha > 0, "alpha", "a number above 0")
            self.require(0 <= self.dropout < 1, "dropout", "0 <= dropout < 1")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.r, self.alpha, self.dropout = config.r, config.alpha, config.dropout

    def stack(self, config: Any, names: Sequence[str]) -> None:
        if self.dropout:
            raise RequestError(
                f"adapter.dropout={self.dropout} cannot be had in the stacked experts at "
                f"{names[0]}: their update is added to the weights; set adapter.dropout=0, or name "
                "other targets (attention, shared)."
            )
        config.target_parameters = [f"{name}.weight" for name in names]

    def peft_config(self, target_modules: str) -> Any:
        from peft import LoraConfig

        return LoraConfig(
            r=self.r,
            lora_alpha=self.alpha,  # pyright: ignore[reportArgumentType]
            lora_dropout=self.dropout,
            target_modules=target_modules,
            bias="none",
        )
