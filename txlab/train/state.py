"""What a resumed run needs beside the weights, as plain containers of tensors and numbers."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from txlab.core.errors import RequestError
from txlab.train.strategy.shards import all_whole, leads, spread


@dataclass
class Counters:
    """How far a run is. Only `updates` moves the learning rate; everything else follows `step`."""

    step: int = 0
    """Step-batches consumed: decides the order of data, all intervals and the end."""
    updates: int = 0
    """Updates applied to the weights."""
    tokens: int = 0
    """Tokens consumed, all ranks together, padding left out."""
    supervised: int = 0
    """Those among them (or whatever the objective counts) that had a target."""
    skipped: int = 0
    """Steps left out since their gradient was not finite."""
    skips_in_row: int = 0
    """Those of them since the last update."""
    empty: int = 0
    """Steps left out since nothing in them was supervised."""
    seconds: float = 0.0
    """Time spent in training steps up to the last row of the log."""


def optimizer_names(optimizer: Optimizer) -> list[str]:
    """Parameter names in the order that torch numbers them."""
    return [name for group in optimizer.param_groups for name in group["param_names"]]


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Moments and the like by parameter name, so that order and grouping may change.

    All ranks must ask; sharded ones come out whole, on rank 0 alone.
    """
    state = optimizer.state_dict()["state"]
    numbers = enumerate(optimizer_names(optimizer))
    return {name: all_whole(state[i], keep=leads()) for i, name in numbers if i in state}


def restore_optimizer(optimizer: Optimizer, state: dict[str, Any], source: str) -> None:
    """Put `state` back; rates and decays stay those of the config that built `optimizer`."""
    names = optimizer_names(optimizer)
    foreign = [name for name in state if name not in names]
    lost = [name for name in names if state and name not in state]
    if foreign or lost:
        raise RequestError(
            f"{source}: the optimizer's state is of other parameters"
            f"{'; missing: ' + ', '.join(lost) if lost else ''}"
            f"{'; extra: ' + ', '.join(foreign) if foreign else ''}."
        )
    groups = optimizer.state_dict()["param_groups"]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbered = {
        i: spread(state[name], parameters[i]) for i, name in enumerate(names) if name in state
    }
    optimizer.load_state_dict({"state": numbered, "param_groups": groups})


def match_parameters(optimizer: Optimizer) -> None:
    """Give restored moments the type of their parameters, which is decided after restoring."""
    own = getattr(optimizer, "non_castable_tensor_keys", ())  # moments of 8 bits and their scales
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            if key in own or not isinstance(value, torch.Tensor):
                continue
            if value.dtype != parameter.dtype and value.dim():
                values[key] = value.to(parameter.dtype)


def random_state() -> dict[str, Any]:
    """Generators of python, numpy and torch (every device of this process)."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.array(keys)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random(state: dict[str, Any]) -> None:
    """Undo `random_state`; devices that were not there then keep their generators."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy(), *rest))
    torch.set_rng_state(state["torch"])
    for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, device)


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed python, numpy and torch; every (seed, rank) draws numbers of its own."""
    mixed = int(
        np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1)
    )
    random.seed(mixed)
    np.random.seed(mixed % 2**32)
    torch.manual_seed(mixed)


@contextlib.contextmanager
def random_kept() -> Iterator[None]:
    """What is drawn inside of this is drawn again after it, as if nothing had been."""
    before = random_state()
    try:
        yield
    finally:
        restore_random(before)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of `seed` inside of this; outside, those that would have come anyway."""
    with random_kept():
        seed_everything(seed)
        yield


def parameter_count(model: nn.Module) -> int:
    """Parameters of `model`, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
