"""What a strategy cannot do, said before a run has written anything."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from txlab.core.errors import RequestError
from txlab.objectives.frozen import Frozen
from txlab.train.config import Train
from txlab.train.devices import check_layers
from txlab.train.strategy.mesh import Mesh
from txlab.train.strategy.roles import refusal

MESH = f"{Mesh.__module__}.{Mesh.__name__}"
PRECISIONS = ("32-true", "bf16-mixed", "bf16-true")
"""What a mesh trains in: no scaler knows of sharded gradients."""


def check_precision(given: Mapping[str, Any], train: Train) -> None:
    """RequestError where the mesh that is asked for has no such precision."""
    strategy = given.get("strategy")
    mesh = isinstance(strategy, Mapping) and strategy.get("_target_") == MESH
    if mesh and train.precision not in PRECISIONS:
        raise RequestError(
            f"train.precision={train.precision} is not to be had sharded (trainer=fsdp): use "
            f"{', '.join(PRECISIONS)}, or trainer=ddp."
        )


def check_strategy(trainer: Any, module: Any) -> None:
    """RequestError where the model, or the machine, does not suit the strategy."""
    strategy = trainer.strategy
    if not isinstance(strategy, Mesh):
        if not isinstance(strategy, (SingleDeviceStrategy, DDPStrategy)):
            raise RequestError(
                f"trainer.strategy: {type(strategy).__name__} is none that txlab saves and resumes "
                "with: use trainer=ddp, trainer=fsdp or trainer=fsdp_tp."
            )
        return
    if strategy.cpu_offload and strategy.root_device.type == "cpu":
        raise RequestError(
            "trainer.strategy.cpu_offload=true: this run is on the CPU, where all lies already: "
            "leave it out."
        )
    if any(kind.__module__.startswith("bitsandbytes") for kind in type(module.optimizer).__mro__):
        raise RequestError(
            "optim=adamw_8bit: its library knows no shards: use optim=adamw, or trainer=ddp."
        )
    n = strategy.tensor_parallel
    check_layers(n, trainer.world_size)
    frozen = [part.network for part in module.objective.modules() if isinstance(part, Frozen)]
    for network in (module.model, *frozen) if n > 1 else ():
        reason = refusal(network, n)
        if reason is not None:
            raise RequestError(
                f"trainer.strategy.tensor_parallel={n}: {reason}; or take trainer=fsdp."
            )
