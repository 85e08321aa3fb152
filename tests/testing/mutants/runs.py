"""Broken objectives and schedules."""

from typing import Any

import torch
from torch import Tensor

from tests.testing.mutant import caught_by
from txlab.data.batch import IGNORE, Batch
from txlab.objectives import Loss, NextToken
from txlab.train.schedule import Cosine


@caught_by("adds_up_over_splits", "sum of losses")
class ReturnsAMean(NextToken):
    """Divides by its own count."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        loss = super().forward(model, batch)
        return Loss(loss.sum / loss.count, loss.count, loss.metrics)


@caught_by("reads_declared_keys_only", "documents")
class NeedsDocuments(NextToken):
    """Reads a key that it does not declare."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        batch["documents"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        return super().forward(model, batch)


@caught_by("ignored_labels_teach_nothing", "states at ignored labels have a gradient")
class LearnsIgnoredLabels(NextToken):
    """Takes an ignored label for token 0."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        return super().forward(model, {**batch, "labels": batch["labels"].clamp(min=0)})


@caught_by("counts_what_is_supervised", "without labels the count is 48")
class CountsEverything(NextToken):
    """Counts padding as well."""

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(batch["labels"].numel())


@caught_by("metrics_have_no_graph", "metric nll holds on to the graph")
class KeepsTheGraph(NextToken):
    """Its metric is the loss itself."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        loss = super().forward(model, batch)
        return Loss(loss.sum, loss.count, {"nll": (loss.sum, loss.count)})


@caught_by("leaves_its_batch_alone", "keys were added")
class AddsAKey(NextToken):
    """Writes to the batch."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        batch.update({"seen": torch.ones(())})  # pyright: ignore[reportArgumentType, reportCallIssue]
        return super().forward(model, batch)


@caught_by("exact_under_autocast", "the loss is torch.bfloat16")
class SumsInBfloat16(NextToken):
    """Lets autocast choose the precision of the sum."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        loss = super().forward(model, batch)
        exact = not torch.is_autocast_enabled("cpu")
        return Loss(loss.sum if exact else loss.sum.bfloat16(), loss.count, loss.metrics)


@caught_by("can_be_learned", "loss goes from")
class PushesUp(NextToken):
    """The sign is wrong."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        loss = super().forward(model, batch)
        return Loss(2 * loss.sum.detach() - loss.sum, loss.count, loss.metrics)


@caught_by("follows_the_labels", "loss with other labels")
class ShiftsAgain(NextToken):
    """Takes its targets from the tokens."""

    def forward(self, model: Any, batch: Batch) -> Loss:
        targets = batch["tokens"].roll(-1, 1).where(batch["labels"] != IGNORE, IGNORE)
        return super().forward(model, {**batch, "labels": targets})


@caught_by("stays_between_0_and_1", "factor of update 0 of 1")
class GoesNegative(Cosine):
    """Ends below zero."""

    def after(self, progress: float) -> float:
        return super().after(progress) - 0.2


@caught_by("warms_up_exactly", "factor 0 of update 0")
@caught_by("short_runs_end_within_the_warm_up", "factors end at 0.475")
class StartsOneLate(Cosine):
    """The warm-up begins with a rate of 0."""

    def factor(self, update: int) -> float:
        return update / self.warmup if update < self.warmup else super().factor(update)


@caught_by("starts_at_once_without_warm_up", "the first factor is")
class AlwaysWarmsUp(Cosine):
    """Ten updates of warm-up, whatever was asked for."""

    def factor(self, update: int) -> float:
        return min(1.0, (update + 1) / 10) * super().factor(update)


@caught_by("depends_on_the_update_alone", "factors depend on earlier calls")
class CountsCalls(Cosine):
    """Counts for itself."""

    calls = -1

    def factor(self, update: int) -> float:
        self.calls += 1
        return super().factor(self.calls)


@caught_by("depends_on_the_update_alone", "the factor never changes")
class NeverMoves(Cosine):
    """Always 1."""

    def factor(self, update: int) -> float:
        return 1.0
