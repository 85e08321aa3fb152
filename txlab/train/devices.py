"""The devices of a run: how many, if the machine has them, if a step can be shared out to them.

All of it is known before any process is started.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txlab.core.errors import RequestError

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from txlab.schema import Config

CROWD = 4
"""So many processes per core of a CPU are still started; with more, no rank would get on."""


def wanted(trainer: dict[str, Any] | None) -> int:
    """Processes that `trainer.devices` asks for on this machine.

    RequestError for several nodes, and where the machine does not have as many.
    """
    given = trainer or {}
    devices, accelerator = given.get("devices", 1), str(given.get("accelerator", "auto"))
    count = _count(devices, accelerator)
    nodes = given.get("num_nodes", 1)
    if nodes not in (1, None):
        raise RequestError(
            f"trainer.num_nodes={nodes}: start the ranks of several machines with torchrun."
        )
    if count > 1:
        _check_room(devices, count, accelerator)
    strategy = given.get("strategy")
    if count > 1 and isinstance(strategy, str):
        for word in ("spawn", "fork", "notebook"):
            if word in strategy:
                raise RequestError(
                    f"trainer.strategy={strategy}: txlab starts the ranks itself; use "
                    f"trainer.strategy={strategy.partition('_' + word)[0]}."
                )
    return count


def check_shares(config: "Config", world: int) -> None:
    """RequestError where `world` ranks cannot share out layers, or the rows of a step, evenly."""
    strategy = (config.trainer or {}).get("strategy")
    n = strategy.get("tensor_parallel", 1) if isinstance(strategy, Mapping) else 1
    if n > 0:
        check_layers(n, world)
        config.data.check_ranks(world // n)


def check_layers(tensor_parallel: int, world: int) -> None:
    """RequestError where `world` devices do not make groups of `tensor_parallel`."""
    if world % tensor_parallel:
        raise RequestError(
            f"trainer.strategy.tensor_parallel={tensor_parallel} does not divide the {world} "
            "devices of trainer.devices."
        )


def described(trainer: "Trainer", precision: str) -> str:
    """Devices, strategy and precision of a run, in a few words."""
    from txlab.train.strategy.peers import sharded

    strategy: Any = trainer.strategy
    kind = {"cuda": "GPU", "cpu": "CPU"}.get(strategy.root_device.type, strategy.root_device.type)
    told = [f"{trainer.world_size} x {kind}"]
    if sharded(trainer):
        n = strategy.tensor_parallel
        told.append("fsdp" if n == 1 else f"fsdp with tensor_parallel={n}")
    elif trainer.world_size > 1:
        told.append("ddp")
    return ", ".join([*told, precision])


def _check_room(devices: Any, count: int, accelerator: str) -> None:
    gpus = _gpus(accelerator)
    if gpus and count > gpus:
        raise RequestError(f"trainer.devices={devices}: this machine has {gpus} GPUs.")
    cores = os.cpu_count() or 1
    if not gpus and accelerator in ("auto", "cpu") and count > max(CROWD * cores, 4):
        raise RequestError(
            f"trainer.devices={devices}: there is no GPU, and {count} processes are too many for "
            f"{cores} cores: ask for {cores}."
        )


def _count(devices: Any, accelerator: str) -> int:
    if isinstance(devices, (list, tuple)):
        return len(devices)
    if str(devices) in ("auto", "-1", "None"):
        gpus = _gpus(accelerator)
        if not gpus and str(devices) == "-1":
            raise RequestError(
                "trainer.devices=-1 is all GPUs, and there is none: give a number of processes."
            )
        return max(gpus, 1)
    words = [word for word in str(devices).split(",") if word.strip()]
    if len(words) == 1 and words[0].strip().isdigit():
        return 1 if "," in str(devices) else _some(int(words[0]), devices)
    if any(not word.strip().isdigit() for word in words):
        _some(0, devices)
    return _some(len(words), devices)


def _gpus(accelerator: str) -> int:
    """GPUs of this machine that `trainer.accelerator` may take."""
    import torch

    return torch.cuda.device_count() if accelerator in ("auto", "gpu", "cuda") else 0


def _some(count: int, devices: Any) -> int:
    if count < 1:
        raise RequestError(
            f"trainer.devices={devices}: expected a number of devices from 1, a list of their "
            "numbers, or auto."
        )
    return count
