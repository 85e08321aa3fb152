"""Optimizers: they descend, decay what should decay, and go on from a saved state."""

import copy
import io
from typing import Any

import torch
from torch import Tensor, nn

from txlab.models.decoder import Decoder
from txlab.nn.ffn import MoE
from txlab.nn.norm import LayerNorm
from txlab.testing import tiny
from txlab.testing.assertions import expect, finite
from txlab.testing.harness import Subject, contract
from txlab.train.optim.roles import RoleRates, parameter_roles
from txlab.train.state import optimizer_state, restore_optimizer

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
def is_saved_by_name(subject: Subject) -> None:
    """Its state passes through a file that executes nothing and comes back by name, bit for bit."""
    straight, broken = body(), body()
    learn(straight, subject.build().make(straight), 6)
    first = subject.build().make(broken)
    learn(broken, first, 3)
    named = all("param_names" in group for group in first.param_groups)
    expect(named, "a group has no param_names: make it of (name, parameter) pairs")
    file = io.BytesIO()
    torch.save(optimizer_state(first), file)
    file.seek(0)
    second = subject.build().make(broken)
    restore_optimizer(second, torch.load(file, weights_only=True), "FILE")
    learn(broken, second, 3, first=3)
    for name, value in values(straight).items():
        expect(torch.equal(value, values(broken)[name]), f"{name} differs after the file")


@contract(OPTIM)
def decays_matrices_only(subject: Subject) -> None:
    """With zero gradients, lr 0.1 and decay 0.1, vectors stay and matrices become 0.99 times.

    Also those of stacked experts, whose biases are vectors though they have two axes.
    """
    experts = MoE.Config(n_experts=3, bias=True)
    for model in (tiny.model(norm=LayerNorm.Config()), tiny.model(ffn=experts)):
        optimizer = subject.build(config=subject.config(lr=0.1, weight_decay=0.1)).make(model)
        before = values(model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        for name, value in values(model).items():
            matrix = value.ndim >= 2 and not name.endswith(".bias")
            wanted = before[name] * (0.99 if matrix else 1.0)
            kind = "matrix" if matrix else "vector"
            expect(torch.allclose(value, wanted, rtol=1e-6), f"{kind} {name} changed otherwise")


@contract(OPTIM)
def follows_rates_by_role(subject: Subject) -> None:
    """role_lr={norm: 0} leaves norms as they are, decay included, and nothing else."""
    model = body()
    config = subject.config(role_lr=RoleRates(norm=0.0))
    before = values(model)
    learn(model, subject.build(config=config).make(model), 2)
    for name, role in parameter_roles(model).items():
        moved = not torch.equal(model.get_parameter(name), before[name])
        expect(moved == (role != "norm"), f"{name}: moved is {moved}")


@contract(OPTIM)
def takes_odd_shapes(subject: Subject) -> None:
    """Scalars, empty tensors and matrices of one row train beside the rest, and stay finite."""
    model = body()
    shapes = {"scalar": (), "empty": (0,), "no_rows": (0, 3), "one": (1, 1), "row": (1, 7)}
    model.odd = nn.ParameterDict({name: torch.full(shape, 2.0) for name, shape in shapes.items()})
    optimizer = subject.build().make(model)
    for _ in range(2):
        for i, parameter in enumerate(model.parameters()):
            parameter.grad = tiny.floats(*parameter.shape, seed=i)
        optimizer.step()
    for name, value in values(model).items():
        finite(value, name)
        if name.startswith("odd.") and value.numel():
            expect(not bool((value == 2).any()), f"{name} did not move")


@contract(OPTIM)
def trains_bfloat16(subject: Subject) -> None:
    """Weights in bfloat16 stay so, finite, and the loss of forty updates falls."""
    model = body().bfloat16()
    losses = learn(model, subject.build().make(model), 40)
    for name, value in values(model).items():
        finite(value, name)
        expect(value.dtype is torch.bfloat16, f"{name} is {value.dtype}")
    expect(losses[-1] < losses[0], f"loss goes from {losses[0]:.3f} to {losses[-1]:.3f}")


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
