"""The norm of a gradient of which a part is sharded: on one mesh, on another, or not at all."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from txlab.train.clip import gradient_norm, scale_gradients


@contextlib.contextmanager
def one_rank() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def parameter(like: torch.Tensor) -> nn.Parameter:
    made = nn.Parameter(like.clone())
    made.grad = like.clone()
    return made


def test_plain_and_sharded_gradients_have_one_norm_and_one_factor():
    parts = [torch.randn(3, 4), torch.randn(5), torch.randn(2, 2)]
    norm = torch.cat([part.flatten() for part in parts]).norm()
    with one_rank():
        line = init_device_mesh("cpu", (1,))
        square = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
        mixed = [
            parameter(parts[0]),
            parameter(distribute_tensor(parts[1], line, [Shard(0)])),
            parameter(distribute_tensor(parts[2], square, [Shard(0), Replicate()])),
        ]
        assert gradient_norm(mixed).item() == pytest.approx(norm.item(), rel=1e-6)
        scale_gradients(mixed, 0.5)
        assert gradient_norm(mixed).item() == pytest.approx(norm.item() / 2, rel=1e-6)
