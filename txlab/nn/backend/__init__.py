"""Attention backends: the definition (`math`), the fused kernels, and `auto`."""

from txlab.nn.backend.auto import Auto
from txlab.nn.backend.backend import Backend, backend
from txlab.nn.backend.banded import Banded
from txlab.nn.backend.flash import Flash
from txlab.nn.backend.flex import Flex
from txlab.nn.backend.math import Math
from txlab.nn.backend.sdpa import SDPA

__all__ = ["SDPA", "Auto", "Backend", "Banded", "Flash", "Flex", "Math", "backend"]
