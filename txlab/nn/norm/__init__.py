"""Normalisation layers, slot `model.norm`."""

from txlab.nn.norm.dyt import DyT
from txlab.nn.norm.layernorm import LayerNorm
from txlab.nn.norm.none import NoNorm
from txlab.nn.norm.norm import Divides, Norm, norm
from txlab.nn.norm.rmsnorm import RMSNorm, rms_norm

__all__ = ["Divides", "DyT", "LayerNorm", "NoNorm", "Norm", "RMSNorm", "norm", "rms_norm"]
