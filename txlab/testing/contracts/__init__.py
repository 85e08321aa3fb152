"""The checks, one file a kind of slot; importing this package registers them all."""

from txlab.testing.contracts import (
    attention,
    backend,
    decoding,
    every,
    grouping,
    init,
    model,
    network,
    position,
    residual,
    tokenwise,
    window,
)

__all__ = [
    "attention",
    "backend",
    "decoding",
    "every",
    "grouping",
    "init",
    "model",
    "network",
    "position",
    "residual",
    "tokenwise",
    "window",
]
