"""Positional schemes, slot `model.pos`."""

from txlab.nn.position.learned import Learned
from txlab.nn.position.none import NoPosition
from txlab.nn.position.position import Position, position
from txlab.nn.position.rope import RoPE
from txlab.nn.position.sinusoidal import Sinusoidal

__all__ = ["Learned", "NoPosition", "Position", "RoPE", "Sinusoidal", "position"]
