"""Hydra's part of txlab: overrides in, one typed config out."""

from txlab.core.hydra.compose import compose, composed, prepare, typed
from txlab.core.hydra.errors import translate
from txlab.core.hydra.saved import from_yaml, to_yaml

__all__ = ["compose", "composed", "from_yaml", "prepare", "to_yaml", "translate", "typed"]
