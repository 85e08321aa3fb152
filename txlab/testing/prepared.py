"""A data option prepared from tiny files, and its rows told apart: what contracts of data share."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from txlab.data.batch import IGNORE
from txlab.data.tokenizer import BPE
from txlab.testing import tiny
from txlab.testing.harness import Subject

Row = tuple[int, ...]


@contextmanager
def prepared(subject: Subject, *, seed: int = 0, **fields: Any) -> Iterator[Any]:
    """The option over the tiny corpus, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield made(subject, Path(folder), seed, fields)


def made(subject: Subject, folder: Path, seed: int, fields: dict[str, Any]) -> Any:
    given: dict[str, Any] = {"batch_size": 4}
    if subject.option.cls.reads == "nothing":
        given |= {name: n for name, n in (("n_train", 60), ("n_val", 12)) if subject.has(name)}
    elif subject.has("path"):
        given["path"] = str(tiny.FILES[subject.option.cls.reads](folder / "files"))
    if subject.has("cache_dir"):
        given["cache_dir"] = str(folder / "cache")
    if subject.has("image_size"):
        given["image_size"] = 8
    if subject.has("val_fraction"):
        given["val_fraction"] = 0.2
    built = subject.build(
        BPE.Config(vocab_size=300 + len(subject.option.cls.control)),
        config=subject.config(**given | fields),
        context=context(subject),
        seed=seed,
    )
    built.prepare()
    return built


def context(subject: Subject) -> int:
    """Tokens a row: documents are cut into small ones, chats must fit in."""
    return {"documents": 16, "nothing": 512}.get(subject.option.cls.reads, 128)


def rows_of(batches: Any) -> list[Row]:
    """The token rows of batches, in order, without padding: its width is the batch's matter.

    Of pictures without text, a hash of each and its label.
    """
    found: list[Row] = []
    for batch in batches:
        if "tokens" in batch:
            for tokens, valid in zip(batch["tokens"], _valid(batch), strict=True):
                found.append(tuple(tokens[valid].tolist()))
        else:
            for pixels, label in zip(batch["pixels"], batch["labels"], strict=True):
                digest = hashlib.blake2b(pixels.numpy().tobytes(), digest_size=8).digest()
                found.append((int.from_bytes(digest), int(label)))
    return found


def _valid(batch: Any) -> Tensor:
    return batch.get("valid", torch.ones_like(batch["tokens"], dtype=torch.bool))


def supervised(batches: Any) -> int:
    """Number of labels in batches."""
    return sum(int((batch["labels"] != IGNORE).sum()) for batch in batches)


def all_rows(rows: Any) -> list[Row]:
    return rows_of(rows.batch([i]) for i in range(len(rows)))


def lines_of(rows: Any) -> Iterator[tuple[int, Any]]:
    """(index, row) of every row of tensors [t]; an index may make several."""
    for i in range(len(rows)):
        batch = rows.batch([i])
        for line in range(rows.lines):
            yield i, {name: tensor[line] for name, tensor in batch.items()}
