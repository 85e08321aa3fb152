"""How documents become rows."""

from enum import StrEnum

from txlab.core.errors import RequestError
from txlab.data.blocks import Blocks
from txlab.data.packing import Packed, best_fit, cut
from txlab.data.shards import Shards


class Documents(StrEnum):
    """What documents that share a row are to each other."""

    isolated = "isolated"
    """Invisible; positions restart."""
    joined = "joined"
    """One running text."""


class Packing(StrEnum):
    """What a row holds."""

    blocks = "blocks"
    """Documents one after another, cut wherever a row is full."""
    best_fit = "best_fit"
    """Whole documents, each in the fullest row that it fits into."""
    none = "none"
    """A document a row."""


def laid(
    store: Shards, packing: Packing, documents: Documents, *, width: int, pad_id: int
) -> Blocks | Packed:
    """Rows of `width` tokens over all documents of a part."""
    if Packing(packing) is Packing.blocks:
        isolate = Documents(documents) is Documents.isolated
        return Blocks(store, context=width, pad_id=pad_id, isolate=isolate)
    pieces = cut(store.offsets(), width)
    rows = best_fit(pieces.lengths, width) if Packing(packing) is Packing.best_fit else None
    return Packed(store, pieces, rows, context=width, pad_id=pad_id)


def places(rows: Blocks | Packed) -> tuple[float, float]:
    """Tokens in a row, and tokens that may see each other; means."""
    if isinstance(rows, Blocks):
        return rows.context, rows.context
    return rows.tokens / len(rows), rows.tokens / rows.pieces


def check_enough(path: str, rows: Blocks | Packed, context: int) -> None:
    """RequestError where the tokens to train on do not make a row."""
    blocks, width = isinstance(rows, Blocks), rows.context
    if len(rows) and (not blocks or rows.store.count > width):
        return
    needs = "model.context" if width == context else f"{width} of its places"
    row = f"a row needs {needs} + 1 = {width + 1}" if blocks else "a row needs 2 of a document"
    raise RequestError(
        f"{path}: {rows.store.count} tokens to train on, {row}; give more text, a smaller "
        "model.context, or data.val_fraction=0."
    )
