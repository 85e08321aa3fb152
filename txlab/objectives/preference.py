"""What objectives on pairs of answers have in common: rewards against a reference."""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE, Batch
from txlab.nn.adapter.adapter import adapter_of
from txlab.nn.auxiliary import Aux
from txlab.objectives.frozen import Frozen, evaluating
from txlab.objectives.objective import Loss, Objective
from txlab.objectives.token_logprobs import token_logprobs


class Preference(Objective):
    """Prefers chosen answers to rejected ones, by rewards against a reference.

    The reward of an answer is beta times (log p(model) - log p(reference)), of its tokens together.
    The reference is the model as it started: with its adapter off where it has one, else a frozen
    copy. Both passes run without dropout, so all rewards start at exactly 0, whatever dropout the
    model or its adapter is configured with.
    """

    @dataclass
    class Config(Objective.Config):
        """Fields shared by objectives on pairs with a reference."""

        beta: float = 0.1
        """How fast rewards grow away from the reference; small: the model may move far."""

        def __post_init__(self) -> None:
            self.require(self.beta > 0, "beta", "a number above 0")

    item: ClassVar[str] = "pair"
    lines: ClassVar[int] = 2
    needs_start: ClassVar[bool] = True
    mean: bool = False
    """Whether an answer's log-probability is the mean over its tokens instead of the sum."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.name, self.beta = config.name, config.beta
        self.reference: Frozen | None = None

    def losses(self, margin: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The loss of each pair; `margin`: the chosen answer's reward minus the rejected one's."""
        raise NotImplementedError

    def bind(self, model: nn.Module) -> None:
        if adapter_of(model) is None:
            self.reference = Frozen(copy.deepcopy(model))

    def count(self, batch: Batch) -> Tensor:
        return self._supervised(batch).sum()

    def forward(self, model: Any, batch: Batch) -> Loss:
        # No torch.no_grad around the reference: nothing of it trains, so it makes no graph, and
        # with the gradient mode of the model's own pass it runs the same kernels to the last bit.
        with self._reference_of(model) as reference:
            before = answer_logprobs(reference, batch, mean=self.mean)[0].detach()
        with evaluating(model):
            after, aux = answer_logprobs(model, batch, mean=self.mean)
        active = self._supervised(batch)
        count = active.sum()
        rewards = self.beta * (after - before)
        margin = (rewards[0::2] - rewards[1::2]) * active
        loss = (self.losses(margin) * active).sum()
        with torch.no_grad():
            figures = {
                "margin": margin,
                "accuracy": (margin > 0).float(),
                "rewards/chosen": rewards[0::2] * active,
                "rewards/rejected": rewards[1::2] * active,
                "logps/chosen": after[0::2] * active,
                "logps/rejected": after[1::2] * active,
            }
            metrics = {name: (figure.sum(), count) for name, figure in figures.items()}
        return Loss(loss, count, metrics).plus(aux)

    @contextlib.contextmanager
    def _reference_of(self, model: nn.Module) -> Iterator[nn.Module]:
        adapter = adapter_of(model)
        if self.reference is not None:
            yield self.reference.network
        elif adapter is not None:
            with evaluating(model), adapter.off(model):
                yield model
        else:
            raise RuntimeError(
                f"objective={self.name} has no reference: call bind(model) before training."
            )

    def _supervised(self, batch: Batch) -> Tensor:
        """Whether both answers of each pair have a supervised token, [pairs]."""
        rows = (batch["labels"] != IGNORE).any(1)
        if len(rows) % 2:
            raise RequestError(
                f"objective={self.name}: a batch of {len(rows)} rows is no list of pairs (chosen "
                "and rejected in turn): use data=pairs."
            )
        return rows[0::2] & rows[1::2]


def answer_logprobs(
    model: Any, batch: Batch, *, mean: bool = False
) -> tuple[Float[Tensor, " b"], Aux]:
    """Log-probability of each row's supervised tokens, summed, and the model's auxiliary losses.

    `mean`: divided by the number of the row's supervised tokens.
    """
    output = model(
        batch["tokens"],
        positions=batch.get("positions"),
        documents=batch.get("documents"),
        valid=batch.get("valid"),
        globals=batch.get("globals"),
    )
    labels = batch["labels"]
    found = token_logprobs(output.states.flatten(0, 1), model.head.weight, labels.flatten())
    of_rows = found.view(labels.shape).sum(1)
    if mean:
        of_rows = of_rows / (labels != IGNORE).sum(1).clamp(min=1)
    return of_rows, output.aux
