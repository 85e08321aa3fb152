"""The initialisation that DeepNorm's residual rule was made for."""

from dataclasses import dataclass

from txlab.core.config import Dims
from txlab.nn.init.init import Role, init
from txlab.nn.init.xavier import XavierInit


@init("deepnorm")
class DeepNormInit(XavierInit):
    """xavier, normal, with gain (8 n_layers)^(-1/4) on values, outputs and feed-forward layers.

    Wang et al. 2022, the case of an encoder or a decoder alone, for model.residual=deepnorm:
    updates of the model then stay bounded at any depth.
    """

    @dataclass
    class Config(XavierInit.Config):
        """Fields of DeepNorm's initialisation."""

        uniform: bool = False
        """Draw matrices uniformly; False: normally, with the same variance."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.beta = (8 * dims.n_layers) ** -0.25

    def gain_of(self, name: str, role: Role) -> float:
        path = name.split(".")
        small = role == "out" or "ffn" in path or path[-2] == "v"
        return self.gain * self.beta if small else self.gain
