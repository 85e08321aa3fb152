"""One decoding step, as it is and compiled."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from txlab.models.model import Model
from txlab.nn.cache import Cache

Scored = tuple[Float[Tensor, "b v"], Float[Tensor, "b 1"]]
Step = Callable[[Tensor, Cache], Scored]
"""Chosen tokens [b 1] and the cache -> logits and their logsumexp."""


def next_logits(model: Model, tokens: Int[Tensor, "b 1"], cache: Cache) -> Scored:
    """Logits after one more token a row, and the logarithm of their sum of exponentials."""
    return scored(model.logits(model(tokens, cache=cache).states[:, -1]))


def scored(logits: Float[Tensor, "b v"]) -> Scored:
    """The logits in float32, and the logarithm of each row's sum of exponentials [b 1]."""
    logits = logits.float()
    return logits, logits.logsumexp(-1, keepdim=True)


def compiled_step(model: Model) -> Step:
    """`next_logits` as one graph; on a CPU called from C++, without Python between."""
    options: dict[str, Any] | None = {"cpp_wrapper": True} if model.device.type == "cpu" else None
    step = torch.compile(next_logits, dynamic=False, options=options)
    return functools.partial(step, model)
