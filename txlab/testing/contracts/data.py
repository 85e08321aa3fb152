"""Data: what a row holds, that every row comes once an epoch, and where a resumed run goes on."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from txlab.data.batch import IGNORE, Batch
from txlab.data.tokenizer import BPE
from txlab.testing import tiny
from txlab.testing.assertions import expect
from txlab.testing.harness import Subject, contract
from txlab.testing.prepared import all_rows, context, lines_of, made, prepared, rows_of, supervised

DATA = "data"


def textual(subject: Subject) -> bool:
    """Whether rows have tokens."""
    return "tokens" in subject.option.cls.keys


@contract(DATA, when=textual)
def rows_are_well_formed(subject: Subject) -> None:
    """A row has at most `context` tokens, labels in the vocabulary, all keys of one length.

    Rows of documents have exactly as many: there the context is filled.
    """
    most = context(subject)
    with prepared(subject) as built:
        for part in (built.train, built.val):
            expect(len(part) > 0, "there are no rows")
            for i, row in lines_of(part):
                width = len(row["tokens"])
                full = width == most or (width < most and built.reads != "documents")
                expect(full, f"row {i} has {width} tokens, the context {most}")
                _well_formed(row, built.tokenizer.vocab_size, i, labelled=built.supervised)


def _well_formed(row: Batch, vocab_size: int, number: int, *, labelled: bool) -> None:
    width = len(row["tokens"])
    for name, tensor in row.items():
        if name == "pixels":
            continue
        shape = tuple(cast(Tensor, tensor).shape)
        wanted = () if name == "items" else (width,)
        expect(shape == wanted, f"row {number}: {name} has shape {shape}")
    tokens, labels = row["tokens"], row["labels"]
    expect(tokens.dtype == labels.dtype == torch.long, f"row {number}: tokens are {tokens.dtype}")
    expect(int(tokens.min()) >= 0 and int(tokens.max()) < vocab_size, f"row {number}: alien tokens")
    kept = labels[labels != IGNORE]
    if labelled:
        expect(len(kept) > 0, f"row {number} has no label")
        expect(int(kept.min()) >= 0 and int(kept.max()) < vocab_size, f"row {number}: alien labels")
    else:
        expect(len(kept) == 0, f"row {number} has labels, the option says that it has none")
    if "valid" in row:
        expect(bool((labels[~row["valid"]] == IGNORE).all()), f"row {number}: padding has labels")
    if "positions" in row:
        low, high = int(row["positions"].min()), int(row["positions"].max())
        expect(low >= 0 and high < width, f"row {number}: positions from {low} to {high}")


@contract(DATA, when=lambda subject: textual(subject) and subject.option.cls.shifted)
def labels_are_the_next_tokens(subject: Subject) -> None:
    """A label is the token after its own, shifted once, and never one of another document."""
    with prepared(subject) as built:
        for i, row in lines_of(built.train):
            labels, following = row["labels"][:-1], row["tokens"][1:]
            kept = labels != IGNORE
            expect(
                torch.equal(labels[kept], following[kept]), f"row {i}: labels are not shifted by 1"
            )
            if "documents" in row:
                crossing = row["documents"][1:] != row["documents"][:-1]
                expect(not bool((kept & crossing).any()), f"row {i}: a label of another document")


def fresh(subject: Subject) -> bool:
    """Whether the option says that its rows are made anew in each epoch."""
    return subject.option.cls.fresh


def lasting(subject: Subject) -> bool:
    """Whether a row is the same in each epoch."""
    return not fresh(subject)


@contract(DATA, when=fresh)
def rows_differ_from_epoch_to_epoch(subject: Subject) -> None:
    """What is made anew differs in each epoch and for each seed, and is the same on every run."""
    with prepared(subject) as one, prepared(subject) as same, prepared(subject, seed=1) as other:
        indices = list(range(min(8, len(one.train))))
        drawn = [
            made.train.drawn(indices, [epoch] * len(indices))
            for made, epoch in ((one, 0), (one, 1), (other, 0), (same, 0))
        ]
        *others, again = drawn[1:]
        expect(_equal(drawn[0], again), "the same seed, epoch and row give another row")
        for what, batch in zip(("epoch", "seed"), others, strict=True):
            expect(not _equal(drawn[0], batch), f"the rows of another {what} are the same")
        held_out = [made.val.batch(list(range(len(made.val)))) for made in (one, other)]
        expect(_equal(*held_out), "held-out rows follow the seed")


def _equal(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@contract(DATA, when=lasting)
def an_epoch_has_every_row_once(subject: Subject) -> None:
    """The steps of an epoch hold each training row once; the next epoch in another order."""
    with prepared(subject, batch_size=1) as built:
        n = len(built.train)
        epochs = [
            [
                row
                for step in range(e * n, (e + 1) * n)
                for row in rows_of(built.step_batches().at(step))
            ]
            for e in range(2)
        ]
        wanted = sorted(all_rows(built.train))
        for number, epoch in enumerate(epochs):
            expect(sorted(epoch) == wanted, f"epoch {number} is not each of the {n} rows once")
        expect(epochs[0] != epochs[1], "two epochs have the same order")
        expect(epochs[0] != all_rows(built.train), "rows are not shuffled")


@contract(DATA)
def order_follows_the_seed(subject: Subject) -> None:
    """The same seed gives the same order, another one another; held-out rows stay the same."""
    with (
        prepared(subject) as one,
        prepared(subject) as same,
        prepared(subject, seed=1) as other,
    ):
        three = (one, same, other)
        orders = [[rows_of(batches) for batches in made.step_batches(0, 5)] for made in three]
        expect(orders[0] == orders[1], "the same seed gives another order")
        expect(orders[0] != orders[2], "another seed gives the same order")
        expect(all_rows(one.val) == all_rows(other.val), "held-out rows follow the seed")


@contract(DATA)
def resumes_where_it_was(subject: Subject) -> None:
    """A stream from step 3 on goes on as the whole stream does, also past the end of an epoch."""
    with prepared(subject, batch_size=4) as built:
        stop = len(built.train) // 4 + 3
        whole = [rows_of(batches) for batches in built.step_batches(0, stop)]
        expect(len(whole) == stop, f"{len(whole)} steps instead of {stop}")
        for start in (3, stop - 1):
            rest = [rows_of(batches) for batches in built.step_batches(start, stop)]
            expect(rest == whole[start:], f"a stream from step {start} differs")


@contract(DATA)
def splits_change_no_step(subject: Subject) -> None:
    """A step has the same rows on 1 rank or 2, in one micro-batch or several."""
    with (
        prepared(subject, batch_size=4) as whole,
        prepared(subject, batch_size=4, micro_batch_size=1) as cut,
    ):
        for step in range(4):
            one = rows_of(whole.step_batches().at(step))
            ranks = [rows_of(whole.step_batches(rank=r, world=2).at(step)) for r in range(2)]
            expect(ranks[0] + ranks[1] == one, f"step {step} of 2 ranks has other rows")
            parts = cut.step_batches().at(step)
            sizes = [len(part["labels"]) for part in parts]
            expect(sizes == [cut.train.lines] * 4, "micro_batch_size=1 is not kept")
            expect(rows_of(parts) == one, f"step {step} in micro-batches of 1 has other rows")


@contract(DATA)
def validation_counts_each_row_once(subject: Subject) -> None:
    """Validation supervises every held-out label once over all ranks; each has as many batches."""
    with prepared(subject, batch_size=4, micro_batch_size=2) as built:
        wanted = supervised(built.val.batch([i]) for i in range(len(built.val)))
        for world in (1, 2, 3):
            ranks = [list(built.val_batches(rank=r, world=world)) for r in range(world)]
            found = sum(supervised(batches) for batches in ranks)
            expect(found == wanted, f"{world} ranks supervise {found} of {wanted} labels")
            sizes = {len(batches) for batches in ranks}
            expect(len(sizes) == 1, f"{world} ranks have {sorted(sizes)} batches")


@contract(DATA, when=lambda subject: not subject.option.cls.supervised)
def validation_has_each_item_once(subject: Subject) -> None:
    """Rows without labels say which item they are; over all ranks validation has each once."""
    with prepared(subject, batch_size=4, micro_batch_size=2) as built:
        wanted = sorted(int(built.val.batch([i])["items"]) for i in range(len(built.val)))
        expect(len({*wanted}) == len(wanted), "two rows are of one item")
        for world in (1, 2, 3):
            batches = [
                b for rank in range(world) for b in built.val_batches(rank=rank, world=world)
            ]
            found = sorted(i for batch in batches for i in batch["items"].tolist() if i >= 0)
            expect(found == wanted, f"{world} ranks have items {found} of {wanted}")


@contract(DATA, when=lasting)
def held_out_is_held_out(subject: Subject) -> None:
    """No document is in both parts, and none is lost: each of the texts names its number.

    Where there are no documents, no row is in both parts.
    """
    with prepared(subject) as built:
        if built.reads in ("nothing", "images", "captions"):
            twice = {*all_rows(built.train)} & {*all_rows(built.val)}
            expect(not twice, f"{len(twice)} rows are in both parts")
            return
        found = []
        for part in (built.train, built.val):
            ids = [i for row in all_rows(part) for i in row]
            found.append(set(re.findall(r"Note (\d+)\.", built.tokenizer.decode(ids))))
        shared = sorted(found[0] & found[1])
        expect(not shared, f"texts {', '.join(shared)} are in both parts")
        n = len(tiny.texts())
        expect(len(found[0] | found[1]) == n, f"{len(found[0] | found[1])} of {n} texts are used")


@contract(DATA)
def prepares_once(subject: Subject) -> None:
    """Prepared again from the same folder it is the same; facts are plain values."""
    with tempfile.TemporaryDirectory() as folder:
        one, two = (made(subject, Path(folder), 0, {}) for _ in range(2))
        expect(all_rows(one.train) == all_rows(two.train), "other rows the second time")
        if textual(subject):
            expect(one.tokenizer.fingerprint == two.tokenizer.fingerprint, "another tokenizer")
        expect(one.facts == two.facts, "other facts the second time")
        expect(json.loads(json.dumps(one.facts)) == one.facts, "facts are not plain values")


@contract(DATA, when=textual)
def takes_a_given_tokenizer(subject: Subject) -> None:
    """A tokenizer of a checkpoint is used as it is."""
    control = list(subject.option.cls.control)
    given = BPE(BPE.Config(vocab_size=270 + len(control), control=control))
    given.train(tiny.texts(10, seed=3))
    with prepared(subject) as own, tempfile.TemporaryDirectory() as folder:
        fields = {name: getattr(own.config, name) for name in ("path",) if subject.has(name)}
        if subject.has("cache_dir"):
            fields["cache_dir"] = folder
        built = subject.build(given, config=subject.config(**fields), context=context(subject))
        built.prepare()
        expect(built.tokenizer.fingerprint == given.fingerprint, "another tokenizer is used")
        expect(
            int(built.train[0]["tokens"].max()) < given.vocab_size, "tokens of another tokenizer"
        )
