"""Networks that an objective asks but never trains, and a model asked without its dropout."""

import contextlib
from collections.abc import Iterator

from torch import nn


class Frozen(nn.Module):
    """Holds a network that stays in eval mode and without gradients whatever happens around it.

    As a part of an objective it moves to the device and dtype of the run, and to no optimizer and
    no checkpoint.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.train(False)

    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode inside of this; each of its parts as it was afterwards."""
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
