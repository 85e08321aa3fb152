"""Initialisations, slot `model.init`."""

from txlab.nn.init.gpt2 import GPT2Init
from txlab.nn.init.init import Init, Normal, Role, init, roles
from txlab.nn.init.llama import LlamaInit

__all__ = ["GPT2Init", "Init", "LlamaInit", "Normal", "Role", "init", "roles"]
