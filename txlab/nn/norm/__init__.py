"""Normalisation layers, slot `model.norm`."""

from txlab.nn.norm.layernorm import LayerNorm
from txlab.nn.norm.norm import Norm, norm
from txlab.nn.norm.rmsnorm import RMSNorm, rms_norm

__all__ = ["LayerNorm", "Norm", "RMSNorm", "norm", "rms_norm"]
