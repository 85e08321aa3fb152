"""What a mesh does with gradients, without ranks."""

import torch
from torch import nn

from txlab.train.masters import Masters
from txlab.train.strategy import mesh
from txlab.train.strategy.mesh import Mesh
from txlab.train.strategy.roles import Split


def test_gradients_known_in_part_are_added_up_where_masters_have_them(monkeypatch):
    """Else each rank of bf16-true would go its own way with what is whole on all of them."""
    linear = nn.Linear(2, 2, bias=False)
    (weight,) = linear.parameters()
    masters = Masters([weight])
    linear.bfloat16()
    masters.adopt(torch.optim.SGD([weight], lr=0.1))
    linear(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    monkeypatch.setattr(mesh, "total", lambda part, _: 2 * part)  # of two ranks with the same
    placed = Mesh(2)
    grid: object = None
    placed._splits = [Split(grid, [(linear, "weight")])]  # pyright: ignore[reportArgumentType]
    placed.finish_gradients(masters.of)
    gradient = masters.of(weight).grad
    assert gradient is not None
    assert gradient.unique().tolist() == [2.0]
    assert gradient.dtype == torch.float32
