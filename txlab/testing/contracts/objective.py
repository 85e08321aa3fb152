"""Objectives: sums that add up however a step is split, and read only what they declare."""

from typing import Any, cast

import torch
from torch import Tensor

from txlab.data.batch import IGNORE, Batch
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, finite, gradients, same, same_gradients
from txlab.testing.harness import Subject, contract

OBJECTIVE = "objective"


def batch(subject: Subject, items: int = 4) -> Batch:
    """A tiny batch that has the keys the objective needs, and as many rows an item as it reads."""
    found = tiny.paired(items) if subject.option.cls.lines == 2 else tiny.batch(items)
    missing = sorted(set(subject.option.cls.needs) - set(found))
    expect(not missing, f"the tiny batch has no {', '.join(missing)}")
    return found


def build(subject: Subject) -> Any:
    """The objective, bound to a model that starts elsewhere than the one it is then tried on."""
    built = subject.build()
    built.bind(tiny.model(seed=7))
    return built


def some(whole: Batch, rows: slice) -> Batch:
    """Some rows of a batch."""
    return cast(Batch, {name: cast(Tensor, tensor)[rows] for name, tensor in whole.items()})


def additive(subject: Subject) -> bool:
    """Whether the option says that its losses add up over micro-batches."""
    return subject.option.cls.additive


@contract(OBJECTIVE)
def reads_declared_keys_only(subject: Subject) -> None:
    """A batch of just the keys in `needs` is enough, and unknown keys change nothing."""
    whole, built, model = batch(subject), build(subject), tiny.model()
    least: Any = {name: whole[name] for name in subject.option.cls.needs}
    loss = built(model, least)
    finite(loss.sum, "loss of a batch without optional keys")
    more = built(model, least | {"nonsense": torch.zeros(4, 12)})
    same(more.sum, loss.sum, "loss of a batch with a stray key", 0.0)
    same(built.count(least), loss.count, "count(batch) against the loss's own count", 0.0)


@contract(OBJECTIVE, when=additive)
def adds_up_over_splits(subject: Subject) -> None:
    """Sums, counts, metrics and gradients of a batch are those of its parts, for any split."""
    whole, built, model = batch(subject), build(subject), tiny.model()
    loss = built(model, whole)
    loss.sum.backward()
    expected, lines = gradients(model), subject.option.cls.lines
    for sizes in ((1, 3), (2, 2), (1, 1, 1, 1)):
        model.zero_grad()
        ends = torch.tensor(sizes).cumsum(0).tolist()
        parts = [
            built(model, some(whole, slice((end - n) * lines, end * lines)))
            for n, end in zip(sizes, ends, strict=True)
        ]
        for part in parts:
            part.sum.backward()
        what = f"items split {sizes}"
        same(torch.stack([p.sum for p in parts]).sum(), loss.sum, f"{what}: sum of losses")
        same(torch.stack([p.count for p in parts]).sum(), loss.count, f"{what}: count", 0.0)
        same_gradients(gradients(model), expected, what)
        for name, (total, count) in loss.metrics.items():
            pairs = [p.metrics[name] for p in parts]
            same(torch.stack([t for t, _ in pairs]).sum(), total, f"{what}: metric {name}")
            same(torch.stack([n for _, n in pairs]).sum(), count, f"{what}: count of {name}", 0.0)


@contract(OBJECTIVE)
def counts_what_is_supervised(subject: Subject) -> None:
    """The count is a whole number above 0, known without the model, and 0 without any label."""
    whole, built = batch(subject), build(subject)
    count = built.count(whole)
    expect(count.ndim == 0 and not count.is_floating_point(), f"count is {count!r}")
    expect(0 < int(count) <= whole["tokens"].numel(), f"count is {int(count)}")
    blank: Any = {**whole, "labels": torch.full_like(whole["labels"], IGNORE)}
    expect(int(built.count(blank)) == 0, f"without labels the count is {int(built.count(blank))}")


@contract(OBJECTIVE)
def ignored_labels_teach_nothing(subject: Subject) -> None:
    """Where a label is IGNORE the states have no gradient; without any label nothing has one."""
    whole, built, model = batch(subject), build(subject), tiny.model()
    states: list[Tensor] = []

    def keep(module: object, args: object, output: Any) -> None:
        output.states.retain_grad()
        states.append(output.states)

    model.register_forward_hook(keep)
    built(model, whole).sum.backward()
    slope = states[0].grad
    assert slope is not None
    ignored = whole["labels"] == IGNORE
    expect(not slope[ignored].any(), "states at ignored labels have a gradient")
    expect(bool(slope[~ignored].any(-1).all()), "states at supervised labels have none")
    blank: Any = {**whole, "labels": torch.full_like(whole["labels"], IGNORE)}
    model.zero_grad()
    loss = built(model, blank)
    expect(
        float(loss.sum.detach()) == 0, f"without labels the loss is {float(loss.sum.detach()):g}"
    )
    loss.sum.backward()
    for name, gradient in gradients(model).items():
        expect(not gradient.any(), f"without labels {name} has a gradient")


@contract(OBJECTIVE)
def metrics_have_no_graph(subject: Subject) -> None:
    """Metrics are pairs (sum, count) of finite scalars outside of the graph; the loss is inside."""
    loss = build(subject)(tiny.model(), batch(subject))
    expect(loss.sum.ndim == 0 and loss.sum.requires_grad, "the loss is no scalar with a graph")
    for name, pair in loss.metrics.items():
        expect(len(pair) == 2, f"metric {name} is no pair")
        for value in pair:
            expect(not value.requires_grad, f"metric {name} holds on to the graph")
            finite(value, f"metric {name}")


@contract(OBJECTIVE)
def leaves_its_batch_alone(subject: Subject) -> None:
    """Neither the batch's keys nor its tensors change."""
    whole = batch(subject)
    before = {name: cast(Tensor, tensor).clone() for name, tensor in whole.items()}
    build(subject)(tiny.model(), whole)
    expect(set(whole) == set(before), "keys were added or taken")
    for name, tensor in whole.items():
        expect(torch.equal(cast(Tensor, tensor), before[name]), f"{name} was changed")


@contract(OBJECTIVE)
def exact_under_autocast(subject: Subject) -> None:
    """Under bfloat16 autocast the loss stays a float32 sum near the exact one."""
    whole, built, model = batch(subject), build(subject), tiny.model()
    exact = built(model, whole)
    with torch.autocast("cpu", torch.bfloat16):
        loss = built(model, whole)
    expect(loss.sum.dtype == torch.float32, f"the loss is {loss.sum.dtype}")
    same(loss.sum, exact.sum, "loss under autocast", 0.05)
    loss.sum.backward()
    for name, gradient in gradients(model).items():
        finite(gradient, f"gradient of {name}")


@contract(OBJECTIVE)
def can_be_learned(subject: Subject) -> None:
    """Thirty steps of Adam on one batch lower the loss by a third."""
    whole, built, model = batch(subject), build(subject), tiny.model(start=True)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        adam.zero_grad()
        loss = built(model, whole)
        mean = loss.sum / loss.count
        mean.backward()
        adam.step()
        losses.append(float(mean.detach()))
    expect(losses[-1] < losses[0] * 2 / 3, f"loss goes from {losses[0]:.3f} to {losses[-1]:.3f}")


@contract(OBJECTIVE)
def follows_the_labels(subject: Subject) -> None:
    """Other labels give another loss."""
    whole, built, model = batch(subject), build(subject), tiny.model()
    labels = whole["labels"]
    other: Any = {**whole, "labels": torch.where(labels == IGNORE, labels, (labels + 1) % 61)}
    differ(built(model, other).sum, built(model, whole).sum, "loss with other labels", 1e-2)
