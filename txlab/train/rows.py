"""The end of a step: when to validate, and the row that the log gets."""

from typing import Any

from txlab.core.errors import RunError
from txlab.train.history import Row, Sums, Window
from txlab.train.state import Counters
from txlab.train.strategy.peers import Peers


def validation_due(module: Any) -> bool:
    """Every `val_every` steps and at the end; once where both meet."""
    every, step = module.config.val_every, module.counters.step
    if not module.validates:
        return False
    ends = step == module.total_steps or module.trainer.should_stop
    return ends or (every is not None and step % every == 0)


def next_row(module: Any, *, validated: bool) -> Row:
    """The row over the steps since the last one; the module's window starts anew."""
    counters, seconds = module.counters, module.watch.lap()
    counters.seconds += seconds
    window = module.window
    window.sums = over_peers(window.sums, module.peers)
    row: Row = {"step": counters.step, "updates": counters.updates, "tokens": counters.tokens}
    row |= {"skipped": counters.skipped + counters.empty, **window.row()}
    row["tokens_per_s"] = window.tokens / max(seconds, 1e-9)
    if module.peak_flops:
        row["mfu"] = row["tokens_per_s"] * module.flops_per_token / module.peak_flops
    if validated:
        row |= {key: value for key, value in module.last_row.items() if key.startswith("val/")}
    module.tell("add_columns", row)
    module.last_row.update(row)
    module.window = Window()
    return row


def over_peers(sums: Sums, peers: Peers) -> Sums:
    """The sums of all peers together."""
    if peers.size > 1 and sums.values is not None:
        # Of a copy: the sum is made in place, and a rank goes on from its own part.
        return Sums(sums.names, peers.total(sums.values.clone()))
    return sums


def step_loss(module: Any) -> float | None:
    """Mean loss of the step just made, over all ranks, which all ask; None: it had no items."""
    if module.last_loss is None or not module.last_loss[1]:
        return None
    total, count = module.last_loss
    return float(module.peers.total(total.clone()) / count)


def refuse_no_update(counters: Counters) -> None:
    """RunError where steps were made and none of them moved the weights."""
    if counters.step and not counters.updates:
        raise RunError(
            f"no update in {counters.step} steps: {counters.empty} had no supervised token, "
            f"{counters.skipped} no finite gradient; look at `show data` and optim.lr."
        )
