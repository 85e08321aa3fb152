"""Adapters: nothing changes at the start, nothing else trains, everything can be undone."""

from typing import Any

import torch
from torch import Tensor

from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, same
from txlab.testing.harness import Subject, contract

ADAPTER = "adapter"
IDS = tiny.tokens(2, 9)


def logits(model: Any, *, graph: bool = False) -> Tensor:
    """Scores of two rows of tokens."""
    with torch.set_grad_enabled(graph):
        return model.logits(model(IDS).states)


def adapted(
    subject: Subject, *, trained: bool = True, dtype: torch.dtype = torch.float32
) -> tuple[Any, Any]:
    """(adapter, model with it), its tensors moved away from their start where `trained`."""
    model, built = tiny.model().to(dtype), subject.build()
    with tiny.seeded(0):
        built.inject(model)
    if trained:
        for i, tensor in enumerate(built.tensors(model).values()):
            tensor.data.add_(0.1 * tiny.floats(*tensor.shape, seed=i).to(dtype))
    return built, model


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@contract(ADAPTER)
def starts_as_the_base(subject: Subject) -> None:
    """A freshly adapted model computes exactly what it did, in eval mode if it was."""
    _, model = adapted(subject, trained=False)
    same(logits(model), logits(tiny.model()), "logits at the start", 0.0)
    expect(not any(m.training for m in model.modules()), "a part of the model is in training mode")


@contract(ADAPTER)
def trains_nothing_else(subject: Subject) -> None:
    """The adapter's tensors have gradients and nothing else has; a step moves only them."""
    built, model = adapted(subject)
    own, base = built.tensors(model), copied(built.base(model))
    logits(model, graph=True).square().mean().backward()
    having = {id(p) for p in model.parameters() if p.grad is not None}
    expect(own and having == {id(t) for t in own.values()}, "other tensors have a gradient as well")
    for name, tensor in own.items():
        expect(tensor.grad is not None and tensor.grad.any(), f"{name} has no gradient")
    trained = [p for p in model.parameters() if p.requires_grad]
    torch.optim.SGD(trained, lr=1.0).step()
    for name, tensor in built.base(model).items():
        expect(torch.equal(tensor, base[name]), f"a step moves {name} of the base")


@contract(ADAPTER)
def changes_the_model(subject: Subject) -> None:
    """With its tensors moved the model computes something else."""
    differ(logits(adapted(subject)[1]), logits(tiny.model()), "logits with the adapter", 1e-3)


@contract(ADAPTER)
def names_the_base_as_before(subject: Subject) -> None:
    """The base's tensors have the names and values of the model without adapter."""
    built, model = adapted(subject)
    base, plain = built.base(model), tiny.model().state_dict()
    expect(list(base) == list(plain), f"names differ: {sorted(set(base) ^ set(plain))[:4]}")
    for name, tensor in plain.items():
        expect(torch.equal(base[name], tensor), f"{name} of the base is another")


@contract(ADAPTER)
def is_saved_by_its_tensors(subject: Subject) -> None:
    """Its tensors in another adapted model of the same base make the same model."""
    built, model = adapted(subject)
    other, twin = adapted(subject, trained=False)
    theirs = other.tensors(twin)
    expect(list(theirs) == list(built.tensors(model)), "two adapters have tensors of other names")
    for name, tensor in built.tensors(model).items():
        theirs[name].data.copy_(tensor)
    same(logits(twin), logits(model), "logits of the twin", 0.0)


@contract(ADAPTER)
def off_is_the_base(subject: Subject) -> None:
    """Turned off the model computes exactly what the base does, merged or not; then as before."""
    built, model = adapted(subject)
    on = logits(model)
    for state in ("beside the weights", "merged"):
        with built.off(model):
            same(logits(model), logits(tiny.model()), f"logits with the adapter {state} off", 0.0)
        same(logits(model), on, f"logits after it was off, {state}", 1e-4)
        built.merge(model)


@contract(ADAPTER)
def merged_is_the_same_model(subject: Subject) -> None:
    """Merged, twice even, it computes the same up to rounding; baked it is a plain model."""
    built, model = adapted(subject)
    on = logits(model)
    for _ in range(2):
        built.merge(model)
        same(logits(model), on, "logits of the merged model", 1e-4)
    built.bake(model)
    same(logits(model), on, "logits of the baked model", 1e-4)
    expect(
        list(model.state_dict()) == list(tiny.model().state_dict()),
        "the baked model is no plain one",
    )
    expect(all(p.requires_grad for p in model.parameters()), "a part of the baked model is frozen")


@contract(ADAPTER)
def unmerged_has_every_bit(subject: Subject) -> None:
    """Ten times merged and unmerged, the base has each of its bits, in float32 and bfloat16."""
    for dtype in (torch.float32, torch.bfloat16):
        built, model = adapted(subject, dtype=dtype)
        before, on = copied(built.base(model)), logits(model)
        for _ in range(10):
            built.merge(model)
            built.unmerge(model)
        for name, tensor in built.base(model).items():
            expect(torch.equal(tensor, before[name]), f"{dtype}: {name} is not what it was")
        same(logits(model), on, f"{dtype}: logits", 0.0)
