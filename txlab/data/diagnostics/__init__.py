"""Small made-up tasks, each of which asks for one ability of a model."""

from txlab.data.diagnostics.arithmetic import ModularAddition, Parity
from txlab.data.diagnostics.copying import Copy, SelectiveCopy
from txlab.data.diagnostics.recall import MQAR, Induction, Needle

__all__ = ["MQAR", "Copy", "Induction", "ModularAddition", "Needle", "Parity", "SelectiveCopy"]
