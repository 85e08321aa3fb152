"""Residual rules, slot `model.residual`."""

from txlab.nn.residual.deepnorm import DeepNorm
from txlab.nn.residual.parallel import Parallel
from txlab.nn.residual.post import Post
from txlab.nn.residual.pre import Pre
from txlab.nn.residual.residual import Branch, Residual, residual
from txlab.nn.residual.sandwich import Sandwich

__all__ = ["Branch", "DeepNorm", "Parallel", "Post", "Pre", "Residual", "Sandwich", "residual"]
