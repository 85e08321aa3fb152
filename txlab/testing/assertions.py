"""What contracts assert, with messages that say in one line what was found."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def expect(condition: object, message: str) -> None:
    """AssertionError with `message` unless the condition holds (also under `python -O`)."""
    if not condition:
        raise AssertionError(message)


def finite(tensor: Tensor, what: str) -> None:
    """Every number is finite."""
    bad = int((~torch.isfinite(tensor)).sum())
    expect(not bad, f"{what}: {bad} of {tensor.numel()} numbers are not finite")


def same(actual: Tensor, expected: Tensor, what: str, tolerance: float = 1e-5) -> None:
    """Equal shapes; numbers differ by at most `tolerance` (absolute, or relative above 1)."""
    shapes = f"{tuple(actual.shape)}, expected {tuple(expected.shape)}"
    expect(actual.shape == expected.shape, f"{what}: shape {shapes}")
    finite(actual, what)
    if actual.numel() == 0:
        return
    scale = expected.detach().abs().clamp(min=1)
    error = float(((actual.detach() - expected.detach()).abs() / scale).max())
    expect(error <= tolerance, f"{what}: differs by up to {error:.2g}, allowed {tolerance:g}")


def differ(actual: Tensor, other: Tensor, what: str, least: float = 1e-4) -> None:
    """At least one number differs by more than `least`."""
    error = float((actual.detach() - other.detach()).abs().max())
    expect(error > least, f"{what}: differs by only {error:.2g}")


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Gradient of each parameter by name, cloned; zeros where there is none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters()
    }


def same_gradients(
    actual: dict[str, Tensor], expected: dict[str, Tensor], what: str, tolerance: float = 1e-5
) -> None:
    """Equal gradients of every parameter, relative to the largest one of the tensor above 1."""
    for name, gradient in expected.items():
        scale = gradient.abs().max().clamp(min=1)
        same(actual[name] / scale, gradient / scale, f"{what}: gradient of {name}", tolerance)


def refused(error: BaseException | None, names: Iterable[object], what: str) -> None:
    """`error` is a one-line RequestError that contains each of `names`."""
    from txlab.core.errors import RequestError

    expect(error is not None, f"{what}: it is not refused")
    kind = type(error).__name__
    expect(isinstance(error, RequestError), f"{what}: refused by {kind} instead of RequestError")
    line = str(error)
    expect("\n" not in line, f"{what}: the refusal has more than one line")
    for name in names:
        expect(str(name) in line, f"{what}: the refusal does not name {name}: {line}")
