"""Feed-forward layers, slot `model.ffn`."""

from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.ffn.mlp import MLP, Activation
from txlab.nn.ffn.swiglu import SwiGLU

__all__ = ["FFN", "MLP", "Activation", "SwiGLU", "ffn"]
