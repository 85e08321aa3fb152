"""What a step has reached of a sharded network, on one rank."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh

from txlab.train.strategy.mesh import shard
from txlab.train.strategy.reached import Reached


class Part(nn.Module):
    """Uses `often` always, `spare` where it is told to, `never` not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self.spare, self.never = (nn.Linear(4, 4) for _ in range(3))
        self.uses = True

    def forward(self, x: Tensor) -> Tensor:
        return self.spare(self.often(x)) if self.uses else self.often(x)


class Network(Part):
    """A part whose `layers` are parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Part(), Part()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return super().forward(x)


@pytest.fixture
def network() -> Iterator[Network]:
    store = distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        network = Network()
        shard(network, init_device_mesh("cpu", (1,)))
        yield network
    finally:
        distributed.destroy_process_group()


def step(network: Network, reached: Reached) -> set[str]:
    """The parameters that have a gradient after a step of two micro-batches."""
    for _ in range(2):
        network(torch.ones(2, 4)).sum().backward()
    reached.finish(lambda own: own, torch.device("cpu"), lambda p: p)
    found = {name for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    return found


def test_what_a_step_does_not_use_has_no_gradient(network: Network):
    """In a block as beside the blocks, and whatever the step before has used."""
    reached = Reached(network)
    every = {name for name, _ in network.named_parameters()}
    used = {name for name in every if "never" not in name}
    assert step(network, reached) == used
    for part in (network, network.layers[1]):
        assert isinstance(part, Part)
        part.uses = False
    less = {n for n in used if not n.startswith(("spare", "layers.1.spare"))}
    assert step(network, reached) == less
    network.uses = True
    assert step(network, reached) == less | {"spare.weight", "spare.bias"}


def test_gradients_of_bfloat16_are_all_float32(network: Network):
    """FSDP2 refuses to exchange those of several types: of both micro-batches, of the last alone,
    and the zeros of what neither has used."""
    sharded: Any = network.to(torch.bfloat16)
    reached = Reached(network)
    for uses in (False, True):
        sharded.set_requires_gradient_sync(uses)
        for part in (network, *network.layers):
            assert isinstance(part, Part)
            part.uses = uses
        network(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    reached.finish(lambda own: own, torch.device("cpu"), lambda p: p)
    for name, parameter in network.named_parameters():
        assert (parameter.grad is None) is ("never" in name), name


def test_a_long_run_has_one_hook_a_parameter(network: Network, monkeypatch: pytest.MonkeyPatch):
    reached, made = Reached(network), []
    register = Tensor.register_post_accumulate_grad_hook
    monkeypatch.setattr(
        Tensor,
        "register_post_accumulate_grad_hook",
        lambda tensor, hook: made.append(hook) or register(tensor, hook),
    )
    for _ in range(3):
        step(network, reached)
    assert len(made) == len(list(network.parameters()))
