"""AdamW with moments of 8 bits."""

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.optim import Optimizer

from txlab.core.errors import RequestError
from txlab.train.optim.adamw import Adam
from txlab.train.optim.optimizer import optim

LIBRARY = "bitsandbytes"


@optim("adamw_8bit")
class AdamW8bit(Adam):
    """AdamW whose moments have 8 bits each, scaled in blocks of 256 (Dettmers et al. 2022).

    By bitsandbytes: `pip install 'txlab[optim]'`.
    """

    @dataclass
    class Config(Adam.Config):
        min_size: int = 4096
        """Tensors with fewer numbers keep moments of 32 bits."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.min_size >= 1, "min_size", "at least 1")

    config: Config

    def make(self, model: nn.Module) -> Optimizer:
        config = self.config
        return _moments()(
            self.groups(model),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            min_8bit_size=config.min_size,
        )


def _moments() -> Any:
    if find_spec(LIBRARY) is None:
        raise RequestError(
            f"optim=adamw_8bit needs {LIBRARY}: pip install 'txlab[optim]', or choose optim=adamw."
        )
    # It misses kernels of inference, which nobody asked for.
    logging.getLogger(f"{LIBRARY}.backends.cpu.ops").setLevel(logging.ERROR)
    from bitsandbytes.optim.adamw import AdamW8bit as Theirs

    class Moments8bit(Theirs):
        def fill_qmap(self) -> None:
            # Made of numbers, which are not to be had where `cost` asks for shapes alone.
            with unset_fake_temporarily():
                super().fill_qmap()
                maps = {name: qmap.tolist() for name, qmap in self.name2qmap.items()}
            self.name2qmap = {name: torch.tensor(values) for name, values in maps.items()}

    return Moments8bit
