"""Chats shown as the model gets them."""

from txlab.data.batch import IGNORE, Batch
from txlab.data.source import shown
from txlab.data.tokenizer.tokenizer import Tokenizer

OPEN, CLOSE = "\u00ab", "\u00bb"


def marked(tokenizer: Tokenizer, batch: Batch, row: int) -> str:
    """A row's text, control tokens spelled out, with the supervised tokens between guillemets."""
    valid = batch["valid"][row].tolist() if "valid" in batch else None
    ids = batch["tokens"][row].tolist()
    target = [False, *(batch["labels"][row] != IGNORE).tolist()][: len(ids)]
    text, run = [], []
    last = False
    n = len(ids) if valid is None else sum(valid)
    for i in range(n + 1):
        mine = i < n and target[i]
        if i == n or mine != last:
            part = shown(tokenizer, run)
            text.append(f"{OPEN}{part}{CLOSE}" if last else part)
            run, last = [], mine
        if i < n:
            run.append(ids[i])
    pads = len(ids) - n
    return "".join(text) + (f"<{pads} x padding>" if pads else "")
