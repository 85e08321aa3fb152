"""Nonlinearities between the linear layers of a feed-forward."""

from collections.abc import Callable
from enum import StrEnum

from torch import Tensor
from torch.nn import functional as F


class Activation(StrEnum):
    """Nonlinearity between two linear layers."""

    gelu = "gelu"
    """x times the normal distribution function (Hendrycks and Gimpel 2016), exact."""
    gelu_tanh = "gelu_tanh"
    """Its tanh approximation (GPT-2)."""
    relu = "relu"
    relu2 = "relu2"
    """relu squared (So et al. 2021, Primer)."""


def relu2(x: Tensor) -> Tensor:
    """max(x, 0)^2."""
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.gelu: F.gelu,
    Activation.gelu_tanh: gelu_tanh,
    Activation.relu: F.relu,
    Activation.relu2: relu2,
}
