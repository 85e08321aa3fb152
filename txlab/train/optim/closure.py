"""What every `step(closure)` of torch's optimizers begins with."""

from collections.abc import Callable
from typing import Any

import torch


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """What `closure` gives, with gradients on inside of it; without one None."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
