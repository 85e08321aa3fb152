"""torchmetrics on held-out tokens: every token once, whatever the batches."""

from typing import Any

import pytest
import torch
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from tests.train.tiny_run import rows_of
from txlab.core.errors import RequestError, RunError
from txlab.data.batch import IGNORE
from txlab.train.callbacks import metrics
from txlab.train.callbacks.metrics import Metrics
from txlab.train.optim import AdamW


def accuracy():
    return Metrics({"token_accuracy": MulticlassAccuracy(average="micro")})


def by_hand(done):
    model, right, count = done.module.model.eval(), 0, 0
    for i in range(2):
        batch = rows_of(10_000 + i, rows=3)
        with torch.no_grad():
            guess = model.logits(model(batch["tokens"]).states).argmax(-1)
        kept = batch["labels"] != IGNORE
        right += int((guess == batch["labels"])[kept].sum())
        count += int(kept.sum())
    return right / count


def test_accuracy_is_of_all_supervised_tokens(run, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", 7)  # of about 17 a batch
    done = run(3, callbacks=(accuracy(),), optim=AdamW.Config(lr=0.5), val_every=1)
    found = done.log.column("val/token_accuracy")
    assert len(found) == 3
    assert found[-1] == pytest.approx(by_hand(done))
    assert 0 < found[-1] < 1
    assert len(set(found)) > 1  # each validation anew


def test_rows_that_fill_a_batch_up_do_not_count(run: Any):
    """A held-out batch of which the second half has no labels, and one without any."""
    watch: Any = accuracy()
    done = run(1, callbacks=(watch,), val=0)
    module = done.module
    watch.on_validation_start(None, module)
    for filled in (2, 0):
        batch = rows_of(5, rows=4)
        batch["labels"][filled:] = IGNORE
        module.objective(module.model, batch)
        watch.on_validation_batch_end(None, module, None, batch, 0)
    expected = int((rows_of(5, rows=4)["labels"][:2] != IGNORE).sum())
    state = watch.metrics["token_accuracy"]
    assert int(state.tp + state.fn) == expected


def test_what_cannot_be_used_is_one_line(run):
    with pytest.raises(RequestError, match=r"metrics\.mine is float: expected a torchmetrics"):
        Metrics({"mine": 1.0})
    each = MulticlassAccuracy(num_classes=17, average="none")
    with pytest.raises(RunError, match=r"mine gives \d+ values; choose one"):
        run(1, callbacks=(Metrics({"mine": each}),))
    with pytest.raises(RunError, match=r"mine \(MeanMetric\) cannot read logits"):
        run(1, callbacks=(Metrics({"mine": MeanMetric()}),))


def test_what_cannot_be_used_is_refused_before_the_first_step(run):
    module = run(1, val=0).module
    each = MulticlassAccuracy(num_classes=17, average="none")
    for wrong, said in {each: "gives 17 values", MeanMetric(): "cannot read logits"}.items():
        with pytest.raises(RequestError, match=rf"mine .*{said}"):
            Metrics({"mine": wrong}).check_plan(module, 1)
    watch = accuracy()
    watch.check_plan(module, 1)
    assert not watch.metrics["token_accuracy"].update_called  # what was shown is forgotten
