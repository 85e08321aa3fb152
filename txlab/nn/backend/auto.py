"""The fastest backend that computes what is asked for."""

from dataclasses import dataclass

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.backend.backend import Backend, backend

FASTEST_FIRST = ("sdpa", "math")


@backend("auto")
class Auto(Backend):
    """Picks the fastest backend for each layer when the model is built; never changes results."""

    @dataclass
    class Config(Backend.Config):
        """No fields: the choice follows from what the attention asks for."""

    supports = frozenset({"softcap", "score"})

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.dims = dims

    def pick(self, features: frozenset[str]) -> Backend:
        for name in FASTEST_FIRST:
            option = backend.option(name)
            if features <= option.cls.supports:
                return backend.build(option.config(), self.dims)
        raise RequestError(
            f"model.backend=auto: no backend computes {', '.join(sorted(features))}."
        )
