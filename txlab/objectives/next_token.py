"""Next-token prediction."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from txlab.data.batch import IGNORE, Batch
from txlab.objectives.linear_ce import linear_ce_sum
from txlab.objectives.objective import Loss, Objective, objective


@objective("next_token")
class NextToken(Objective):
    """Negative log-likelihood of each next token, summed; `labels` are shifted by the data."""

    @dataclass
    class Config(Objective.Config):
        """Fields of next-token prediction."""

        z_loss: float = 0.0
        """Weight of logsumexp(logits)^2 against drifting logits (Chowdhery et al. 2022, PaLM)."""
        label_smoothing: float = 0.0
        """Share of the probability spread evenly over the vocabulary (Szegedy et al. 2016)."""

        def __post_init__(self) -> None:
            self.require(self.z_loss >= 0, "z_loss", "0 or more")
            self.require(0 <= self.label_smoothing < 1, "label_smoothing", "0 or more, below 1")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.z_loss = config.z_loss
        self.label_smoothing = config.label_smoothing

    def count(self, batch: Batch) -> Tensor:
        return (batch["labels"] != IGNORE).sum()

    def forward(self, model: Any, batch: Batch) -> Loss:
        output = model(
            batch["tokens"],
            positions=batch.get("positions"),
            documents=batch.get("documents"),
            valid=batch.get("valid"),
            globals=batch.get("globals"),
        )
        loss, nll = linear_ce_sum(
            output.states.flatten(0, 1),
            model.head.weight,
            batch["labels"].flatten(),
            z_loss=self.z_loss,
            label_smoothing=self.label_smoothing,
        )
        count = self.count(batch)
        return Loss(loss, count, {"nll": (nll, count)}).plus(output.aux)
