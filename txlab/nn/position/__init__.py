"""Positional schemes, slot `model.pos`."""

from txlab.nn.position.alibi import ALiBi
from txlab.nn.position.learned import Learned
from txlab.nn.position.none import NoPosition
from txlab.nn.position.position import Position, position
from txlab.nn.position.rope import RoPE
from txlab.nn.position.sinusoidal import Sinusoidal
from txlab.nn.position.t5 import T5

__all__ = [
    "T5",
    "ALiBi",
    "Learned",
    "NoPosition",
    "Position",
    "RoPE",
    "Sinusoidal",
    "position",
]
