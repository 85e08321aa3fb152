"""Pictures changed a little in each epoch, by torchvision where it is installed."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.data.chance import uniforms


class Augment(StrEnum):
    """How pictures are changed from epoch to epoch."""

    none = "none"
    """Not at all."""
    flip = "flip"
    """Mirrored, left to right, half of the time. Not for digits or letters."""
    shift = "shift"
    """Moved by up to an eighth of their size, each way; edges are repeated."""
    crop = "crop"
    """torchvision: a random part of 35 % to 100 %, scaled up, and mirrored half of the time."""
    rand_augment = "rand_augment"
    """torchvision: crop, then RandAugment (Cubuk et al. 2020)."""


def augmenting(kind: Augment, size: int) -> Callable[..., Float[Tensor, "c h w"]] | None:
    """`f(pixels, seed=, epoch=, row=)`, a pure function of its arguments; None for `none`.

    RequestError where it needs torchvision and that is not installed.
    """
    if kind == Augment.none:
        return None
    if kind in (Augment.flip, Augment.shift):
        return _flipped if kind == Augment.flip else _shifted
    transform = _torchvision(kind, size)

    def augmented(pixels: Tensor, *, seed: int, epoch: int, row: int) -> Tensor:
        # torchvision draws from torch's own generator: seeded for this row, then put back.
        with torch.random.fork_rng(devices=[]):
            drawn = uniforms(1, seed=seed, epoch=epoch, row=row)[0]
            torch.manual_seed(int(drawn * 2**53))
            return transform(pixels).clamp(0, 1)

    return augmented


def _flipped(pixels: Tensor, *, seed: int, epoch: int, row: int) -> Tensor:
    return pixels.flip(-1) if uniforms(1, seed=seed, epoch=epoch, row=row)[0] < 0.5 else pixels


def _shifted(pixels: Tensor, *, seed: int, epoch: int, row: int) -> Tensor:
    size = pixels.shape[-1]
    most = max(1, size // 8)
    left, top = (uniforms(2, seed=seed, epoch=epoch, row=row) * (2 * most + 1)).astype(int)
    padded = torch.nn.functional.pad(pixels[None], [most] * 4, mode="replicate")[0]
    return padded[:, top : top + size, left : left + size]


def _torchvision(kind: Augment, size: int) -> Any:
    try:
        from torchvision.transforms import v2  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        raise RequestError(
            f"data.augment={kind} needs torchvision, which cannot be imported "
            f"({str(error).splitlines()[0]}); install it, or choose flip, shift or none."
        ) from error
    steps = [v2.RandomResizedCrop(size, scale=(0.35, 1.0), antialias=True)]
    steps.append(v2.RandomHorizontalFlip())
    if kind == Augment.rand_augment:
        steps += [
            v2.ToDtype(torch.uint8, scale=True),
            v2.RandAugment(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    return v2.Compose(steps)
