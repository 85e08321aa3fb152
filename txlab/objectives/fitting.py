"""Whether the rows of the data are what an objective learns from."""

from txlab.core.errors import RequestError
from txlab.data.source import Data
from txlab.objectives.objective import Objective


def check_fits(goal: Objective, data: Data, name: str) -> None:
    """RequestError where the prepared `data` lacks what the objective of this name reads."""
    kind = data.config.name
    if not (data.supervised or goal.generates):
        raise RequestError(
            f"objective={name} learns from labels; data={kind} has "
            "none, its answers are the model's own: use data=chat, which has the right ones."
        )
    missing = [key for key in goal.needs if key not in data.keys]
    unread = "pixels" in data.keys and "pixels" not in goal.needs
    if missing or unread:
        what = f"reads {' and '.join(goal.needs)}" if missing else "does not read pixels"
        raise RequestError(
            f"objective={name} {what}; the batches of data={kind} have {', '.join(data.keys)}."
        )
    if goal.lines != data.train.lines:
        wanted = (
            "pairs of rows (data=pairs)" if goal.lines == 2 else "single rows (data=text, chat)"
        )
        raise RequestError(
            f"objective={name} is for {wanted}; data={kind} has items of {data.train.lines} rows."
        )
    if goal.shifted != data.shifted:
        wanted = "next tokens" if goal.shifted else "hidden tokens (data=mlm)"
        raise RequestError(
            f"objective={name} is for labels that are {wanted}; those of "
            f"data={kind} are {'next' if data.shifted else 'hidden'} tokens."
        )
