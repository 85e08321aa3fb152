"""torch.compile, block by block and in place."""

import os

import torch
from torch import nn

from txlab.core.errors import RequestError

BACKEND = "TXLAB_COMPILE_BACKEND"
"""Environment variable naming another torch.compile backend; tests use `aot_eager`."""


def compile_blocks(model: nn.Module) -> None:
    """Compile each of `model.layers` in place: one graph for all, names and state unchanged.

    The forward pass alone, without the block's hooks: those of a sharded run gather its weights.
    """
    layers = getattr(model, "layers", None)
    if layers is None:
        raise RequestError(
            f"train.compile=true: {type(model).__name__} has no `layers` to compile."
        )
    for block in layers:
        block.forward = torch.compile(block.forward, backend=os.environ.get(BACKEND, "inductor"))
