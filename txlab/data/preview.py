"""Rows as text: what is supervised, which document it is of, what is control, what is padding."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from txlab.data.batch import IGNORE, Batch
from txlab.data.tokenizer.tokenizer import Tokenizer

OPEN, CLOSE = "\u00ab", "\u00bb"


@dataclass(frozen=True)
class Span:
    """Neighbouring tokens of one kind."""

    text: str
    supervised: bool = False
    """Whether they are targets."""
    control: bool = False
    """Whether they are control tokens, spelled out."""
    document: int = 0
    """Number of the document within the row."""
    padding: int = 0
    """Places of padding; then there is no text."""


def spans(tokenizer: Tokenizer, batch: Batch, row: int, *, shifted: bool = True) -> list[Span]:
    """A row in spans, in order. Labels are the tokens after their places where `shifted`.

    Where they are not, the label of a place that hides its token follows it after an arrow.
    """
    ids = batch["tokens"][row].tolist()
    labels = batch["labels"][row].tolist() if "labels" in batch else [IGNORE] * len(ids)
    targets = [IGNORE, *labels[:-1]] if shifted else labels
    valid = _list(batch, "valid", row, [True] * len(ids))
    documents = _list(batch, "documents", row, [0] * len(ids))
    names = {i: spelling for spelling, i in tokenizer.control.items()}
    found: list[Span] = []
    kinds = zip(ids, targets, valid, documents, strict=True)
    for kind, run in itertools.groupby(kinds, lambda t: _kind(t, names, shifted=shifted)):
        there, document, supervised, control, other = kind
        tokens = [token for token, *_ in run]
        if not there:
            found.append(Span("", document=document, padding=len(tokens)))
            continue
        text = "".join(names[i] for i in tokens) if control else tokenizer.decode(tokens)
        if other is not None:
            text += f"\u2192{names.get(other) or tokenizer.decode([other])}"
        found.append(Span(text, supervised, control, document))
    return found


def _kind(
    token: tuple[int, int, bool, int], names: dict[int, str], *, shifted: bool
) -> tuple[bool, int, bool, bool, int | None]:
    """(valid, document, supervised, control, label where it is another token)."""
    i, target, valid, document = token
    if not valid:
        return False, 0, False, False, None
    supervised = target != IGNORE
    other = target if supervised and not shifted and target != i else None
    return True, document, supervised, i in names, other


def _list(batch: Batch, name: str, row: int, otherwise: list) -> list:
    found = batch.get(name)
    return found[row].tolist() if isinstance(found, torch.Tensor) else otherwise


def marked(found: Iterable[Span]) -> str:
    """Spans as plain text, with the supervised ones between guillemets."""
    parts = []
    for supervised, run in itertools.groupby(found, lambda span: span.supervised):
        text = "".join(f"<{s.padding} x padding>" if s.padding else s.text for s in run)
        parts.append(f"{OPEN}{text}{CLOSE}" if supervised else text)
    return "".join(parts)


def shortened(found: Sequence[Span], width: int) -> list[Span]:
    """The first `width` characters of spans, with an ellipsis where something is cut off."""
    kept: list[Span] = []
    for span in found:
        if len(span.text) > width or (span.padding and not width):
            part = [replace(span, text=span.text[:width])] if width else []
            return [*kept, *part, Span("\u2026", document=span.document)]
        kept.append(span)
        width -= len(span.text)
    return kept
