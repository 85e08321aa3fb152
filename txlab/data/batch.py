"""The batch that every loader yields and every objective reads."""

from typing import NotRequired, TypedDict

from jaxtyping import Bool, Int
from torch import Tensor

IGNORE = -100
"""Label of a position that is not supervised."""


class Batch(TypedDict):
    """One micro-batch of token rows.

    `labels[b, t]` is the target *of* position t, already shifted by the data and by nobody else:
    for next-token prediction it is the token at t + 1, or `IGNORE`.
    """

    tokens: Int[Tensor, "b t"]
    labels: Int[Tensor, "b t"]
    positions: NotRequired[Int[Tensor, "b t"]]
    """Position within the document; restarts at 0 in packed rows. Absent: 0, 1, 2 ..."""
    documents: NotRequired[Int[Tensor, "b t"]]
    """Number of the document a token belongs to, within its row. Absent: one document a row."""
    valid: NotRequired[Bool[Tensor, "b t"]]
    """False at padding. Absent: no padding."""
    globals: NotRequired[Bool[Tensor, "b t"]]
    """Tokens that see and are seen by all, for attention that has such. Absent: its own rule."""
    items: NotRequired[Int[Tensor, " b"]]
    """Number of the item that a row is made of, where more is known about it; -1: a filler."""


def token_count(batch: Batch) -> Tensor:
    """Tokens of a batch, padding and fillers left out; on the batch's device."""
    if "items" in batch:
        real = (batch["items"] >= 0)[:, None].expand(batch["tokens"].shape[:2])
        return (real & batch["valid"] if "valid" in batch else real).sum()
    if "valid" in batch:
        return batch["valid"].sum()
    return batch["tokens"].new_tensor(batch["tokens"].numel())
