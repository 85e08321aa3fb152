"""Direct preference optimization."""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.errors import RequestError
from txlab.data.batch import IGNORE, Batch
from txlab.nn.adapter.adapter import adapter_of
from txlab.nn.auxiliary import Aux
from txlab.objectives.frozen import Frozen, evaluating
from txlab.objectives.objective import Loss, Objective, objective
from txlab.objectives.token_logprobs import token_logprobs


def dpo_loss(margin: Float[Tensor, " p"], *, label_smoothing: float = 0.0) -> Float[Tensor, " p"]:
    """-log sigmoid(margin) of each pair (Rafailov et al. 2023, equation 7).

    `margin` is the reward of the chosen answer minus that of the rejected one. With smoothing s the
    pair is taken to be labelled the wrong way round with probability s (Mitchell 2023, cDPO):
    -(1 - s) log sigmoid(margin) - s log sigmoid(-margin).
    """
    smooth = label_smoothing
    return -(1 - smooth) * F.logsigmoid(margin) - smooth * F.logsigmoid(-margin)


@objective("dpo")
class DPO(Objective):
    """Prefers chosen answers to rejected ones, against a reference (Rafailov et al. 2023).

    The reward of an answer is beta times (log p(model) - log p(reference)), summed over its tokens.
    The reference is the model as it started: with its adapter off where it has one, else a frozen
    copy. Both passes run without dropout, so the first loss is ln 2 exactly, whatever dropout the
    model or its adapter is configured with.
    """

    @dataclass
    class Config(Objective.Config):
        """Fields of direct preference optimization."""

        beta: float = 0.1
        """How fast rewards grow away from the reference; small: the model may move far."""
        label_smoothing: float = 0.0
        """Share of pairs that are taken to be labelled the wrong way round, below 0.5."""

        def __post_init__(self) -> None:
            self.require(self.beta > 0, "beta", "a number above 0")
            self.require(0 <= self.label_smoothing < 0.5, "label_smoothing", "0 or more, below 0.5")

    item: ClassVar[str] = "pair"
    lines: ClassVar[int] = 2
    needs_start: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.beta, self.label_smoothing = config.beta, config.label_smoothing
        self.reference: Frozen | None = None

    def bind(self, model: nn.Module) -> None:
        if adapter_of(model) is None:
            self.reference = Frozen(copy.deepcopy(model))

    def count(self, batch: Batch) -> Tensor:
        return _supervised(batch).sum()

    def forward(self, model: Any, batch: Batch) -> Loss:
        # No torch.no_grad around the reference: nothing of it trains, so it makes no graph, and
        # with the gradient mode of the model's own pass it runs the same kernels to the last bit.
        with self._reference_of(model) as reference:
            before = answer_logprobs(reference, batch)[0].detach()
        with evaluating(model):
            after, aux = answer_logprobs(model, batch)
        active = _supervised(batch)
        count = active.sum()
        rewards = self.beta * (after - before)
        margin = (rewards[0::2] - rewards[1::2]) * active
        losses = dpo_loss(margin, label_smoothing=self.label_smoothing)
        loss = (losses * active).sum()
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
            raise RuntimeError("objective=dpo has no reference: call bind(model) before training.")


def answer_logprobs(model: Any, batch: Batch) -> tuple[Float[Tensor, " b"], Aux]:
    """Log-probability of each row's supervised tokens, summed, and the model's auxiliary losses."""
    output = model(
        batch["tokens"],
        positions=batch.get("positions"),
        documents=batch.get("documents"),
        valid=batch.get("valid"),
        globals=batch.get("globals"),
    )
    labels = batch["labels"]
    found = token_logprobs(output.states.flatten(0, 1), model.head.weight, labels.flatten())
    return found.view(labels.shape).sum(1), output.aux


def _supervised(batch: Batch) -> Tensor:
    """Whether both answers of each pair have a supervised token, [pairs]."""
    rows = (batch["labels"] != IGNORE).any(1)
    if len(rows) % 2:
        raise RequestError(
            f"objective=dpo: a batch of {len(rows)} rows is no list of pairs (chosen and rejected "
            "in turn): use data=pairs."
        )
    return rows[0::2] & rows[1::2]
