"""All that decides the rest of a run but weights and generators, as plain containers."""

from dataclasses import asdict
from typing import Any

from torch import Tensor

from txlab.train.averaging import exchanged
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
        "training": module.averaging.training(),
        "callbacks": callback_states(module.trainer),
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
    module.resumed["callbacks"] = state.get("callbacks", {})
    if training := state.get("training"):
        module.resumed["averages"] = exchanged(module.optimizer, training)


def callback_states(trainer: Any) -> dict[str, dict[str, Any]]:
    """What callbacks want to be given back, by who they are; only plain containers."""
    found = {callback.state_key: callback.state_dict() for callback in trainer.callbacks}
    return {key: state for key, state in found.items() if state and plain(state)}


def put_back_callbacks(trainer: Any, resumed: dict[str, Any]) -> None:
    """Undo `callback_states`; callbacks that were not there then start afresh."""
    states = resumed.get("callbacks", {})
    for callback in trainer.callbacks:
        if callback.state_key in states:
            callback.load_state_dict(states[callback.state_key])


def plain(value: Any) -> bool:
    """Whether `value` can be read back without running code of a file."""
    if isinstance(value, dict):
        return all(plain(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    return value is None or isinstance(value, (bool, int, float, str, Tensor))
