"""All that decides the rest of a run but weights and generators, as plain containers."""

from dataclasses import asdict
from typing import Any

from txlab.train.rows import over_peers
from txlab.train.state import Counters, optimizer_state, restore_optimizer


def taken(module: Any) -> dict[str, Any]:
    """The state of a TrainModule.

    The same on every rank, and asked on every rank: sums of the log are added up over them, and
    sharded moments are put together.
    """
    scaler = module.scaler
    sums = over_peers(module.window.sums, module.peers)
    return {
        "counters": asdict(module.counters),
        "optimizer": optimizer_state(module.optimizer),
        "scaler": scaler.state_dict() if scaler is not None else {},
        "window": {**module.window.state(), "sums": sums.state()},
        "seconds": module.watch.read(),
        "row": dict(module.last_row),
    }


def put_back(module: Any, state: dict[str, Any], source: str) -> None:
    """Undo `taken`, before the first step; the model's weights are loaded already.

    What only the first step can use (the scaler's state, generators) is kept in `module.resumed`.
    """
    restore_optimizer(module.optimizer, state["optimizer"], source)
    module.counters = Counters(**state["counters"])
    module.window.load(state["window"])
    module.watch.seconds = state["seconds"]
    module.last_row = dict(state["row"])
    module.resumed = {"scaler": state["scaler"], "random": state["random"]}
