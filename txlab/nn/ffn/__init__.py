"""Feed-forward layers, slot `model.ffn`."""

from txlab.nn.ffn.activation import Activation
from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.ffn.glu import GEGLU, GLU, ReGLU, SwiGLU
from txlab.nn.ffn.mlp import MLP
from txlab.nn.ffn.moe import MoE
from txlab.nn.ffn.perceptron import Perceptron

__all__ = [
    "FFN",
    "GEGLU",
    "GLU",
    "MLP",
    "Activation",
    "MoE",
    "Perceptron",
    "ReGLU",
    "SwiGLU",
    "ffn",
]
