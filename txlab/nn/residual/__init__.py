"""Residual rules, slot `model.residual`."""

from txlab.nn.residual.parallel import Parallel
from txlab.nn.residual.post import Post
from txlab.nn.residual.pre import Pre
from txlab.nn.residual.residual import Branch, Residual, residual

__all__ = ["Branch", "Parallel", "Post", "Pre", "Residual", "residual"]
