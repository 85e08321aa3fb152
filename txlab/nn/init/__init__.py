"""Initialisations, slot `model.init`."""

from txlab.nn.init.deepnorm import DeepNormInit
from txlab.nn.init.gpt2 import GPT2Init
from txlab.nn.init.init import Init, Normal, Role, Uniform, init, roles
from txlab.nn.init.llama import LlamaInit
from txlab.nn.init.mup import MuPInit
from txlab.nn.init.small import SmallInit
from txlab.nn.init.xavier import XavierInit

__all__ = [
    "DeepNormInit",
    "GPT2Init",
    "Init",
    "LlamaInit",
    "MuPInit",
    "Normal",
    "Role",
    "SmallInit",
    "Uniform",
    "XavierInit",
    "init",
    "roles",
]
