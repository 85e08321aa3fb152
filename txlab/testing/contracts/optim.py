"""Optimizers: they descend, decay what should decay, and go on from a saved state."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from txlab.models.decoder import Decoder
from txlab.nn.norm import LayerNorm
from txlab.testing import tiny
from txlab.testing.assertions import expect, finite
from txlab.testing.harness import Subject, contract

OPTIM = "optim"


def body() -> Decoder:
    """A model with matrices, vectors, biases and a tied head."""
    return tiny.model(norm=LayerNorm.Config(), start=True)


def learn(model: Decoder, optimizer: Any, steps: int, first: int = 0) -> list[float]:
    """Losses of `steps` updates; the data of an update depends on its number alone."""
    losses = []
    for step in range(first, first + steps):
        ids = (tiny.tokens(1, 1, seed=step % 3) + torch.arange(17)) % tiny.DIMS.vocab_size
        optimizer.zero_grad()
        logits = model.logits(model(ids[:, :-1]).states)
        loss = nn.functional.cross_entropy(logits[0], ids[0, 1:])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@contract(OPTIM)
def descends(subject: Subject) -> None:
    """Forty updates at its default rate lower the loss, and stay finite."""
    model = body()
    losses = learn(model, subject.build().make(model), 40)
    expect(losses[-1] < losses[0], f"loss goes from {losses[0]:.3f} to {losses[-1]:.3f}")
    for name, value in values(model).items():
        finite(value, name)


@contract(OPTIM)
def moves_every_parameter(subject: Subject) -> None:
    """One update moves every trainable parameter and no frozen one."""
    model = body()
    frozen = model.get_parameter("layers.0.attn.q.weight")
    frozen.requires_grad_(False)
    before = values(model)
    learn(model, subject.build().make(model), 1)
    for name, parameter in model.named_parameters():
        moved = not torch.equal(parameter, before[name])
        expect(moved == parameter.requires_grad, f"{name}: moved is {moved}")


@contract(OPTIM)
def goes_on_from_saved_state(subject: Subject) -> None:
    """Three updates, state loaded into a new optimizer, three more: bit for bit as six."""
    straight, broken = body(), body()
    learn(straight, subject.build().make(straight), 6)
    first = subject.build().make(broken)
    learn(broken, first, 3)
    state = copy.deepcopy(first.state_dict())
    second = subject.build().make(broken)
    second.load_state_dict(state)
    learn(broken, second, 3, first=3)
    for name, value in values(straight).items():
        expect(torch.equal(value, values(broken)[name]), f"{name} differs after the break")


@contract(OPTIM)
def decays_matrices_only(subject: Subject) -> None:
    """With zero gradients, lr 0.1 and decay 0.1, vectors stay and matrices become 0.99 times."""
    model = tiny.model(norm=LayerNorm.Config())
    optimizer = subject.build(config=subject.config(lr=0.1, weight_decay=0.1)).make(model)
    before = values(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in values(model).items():
        wanted = before[name] * (0.99 if value.ndim >= 2 else 1.0)
        kind = "matrix" if value.ndim >= 2 else "vector"
        expect(torch.allclose(value, wanted, rtol=1e-6), f"{kind} {name} changed otherwise")


@contract(OPTIM)
def rests_without_decay_or_gradient(subject: Subject) -> None:
    """With zero gradients and no decay nothing moves; at rate 0 nothing moves whatever comes."""
    model = body()
    optimizer = subject.build(config=subject.config(weight_decay=0.0)).make(model)
    before = values(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    learn(model, optimizer, 2)
    for name, value in values(model).items():
        expect(torch.equal(value, before[name]), f"{name} moved")


@contract(OPTIM)
def groups_each_parameter_once(subject: Subject) -> None:
    """One torch Optimizer; every trainable parameter in exactly one group, tied ones once."""
    model = body()
    model.get_parameter("layers.1.ffn.up.weight").requires_grad_(False)
    optimizer = subject.build(config=subject.config(lr=0.25)).make(model)
    expect(isinstance(optimizer, torch.optim.Optimizer), f"make returns {type(optimizer).__name__}")
    listed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    wanted = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    twice = sorted({wanted.get(i, "a stranger") for i in listed if listed.count(i) > 1})
    expect(not twice, f"listed twice: {', '.join(twice)}")
    missing = sorted(name for i, name in wanted.items() if i not in listed)
    expect(not missing, f"in no group: {', '.join(missing)}")
    expect(set(listed) == set(wanted), "a frozen parameter is in a group")


@contract(OPTIM)
def repeats_itself(subject: Subject) -> None:
    """Two runs from the same weights are equal bit for bit."""
    one, two = body(), body()
    losses = [learn(model, subject.build().make(model), 4) for model in (one, two)]
    expect(losses[0] == losses[1], f"losses {losses[0]} and {losses[1]}")
