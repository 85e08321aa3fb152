"""Decoding on the cache equals the full forward pass, however the tokens arrive."""

from typing import Any

import torch
from torch import Tensor

from txlab.models.model import Model
from txlab.testing import tiny
from txlab.testing.assertions import differ, expect, same
from txlab.testing.harness import Subject, contract

DECODES = ("model.attn", "model.pos")
LENGTHS = (3, 7, 12)
NEW = 6


def decoder(subject: Subject, **choices: Any) -> Model:
    """A shaken decoder with the subject in its place."""
    return tiny.model(**{subject.slot.path.partition(".")[2]: subject.config()}, **choices)


@torch.no_grad()
def full(model: Model, tokens: Tensor) -> Tensor:
    """Logits [t v] of one row without a cache."""
    return model.logits(model(tokens[None]).states)[0]


@contract(*DECODES)
@torch.no_grad()
def decodes_in_any_chunks(subject: Subject) -> None:
    """Tokens fed through the cache in chunks of any size give the logits of the full pass."""
    model = decoder(subject)
    tokens = tiny.tokens(2, 10)
    expected = model.logits(model(tokens).states)
    for sizes in ((1,) * 10, (10,), (7, 1, 1, 1), (3, 4, 3), (1, 8, 1)):
        cache = model.new_cache(2, 10)
        parts = [model(part, cache=cache).states for part in tokens.split(sizes, dim=1)]
        same(model.logits(torch.cat(parts, 1)), expected, f"chunks of {sizes}", 2e-5)


@contract(*DECODES)
@torch.no_grad()
def decodes_uneven_rows(subject: Subject) -> None:
    """Rows of 3, 7 and 12 tokens, padded left or right, then decoded together: each as if alone."""
    model = decoder(subject)
    rows = [tiny.tokens(1, n + NEW, seed=n)[0] for n in LENGTHS]
    alone = [full(model, row) for row in rows]
    for left in (True, False):
        valid = tiny.padded(LENGTHS, left=left)
        prompt = torch.full(valid.shape, 5)
        for row, tokens in enumerate(rows):
            prompt[row, valid[row]] = tokens[: LENGTHS[row]]
        cache = model.new_cache(3, max(LENGTHS) + NEW)
        logits = model.logits(model(prompt, valid=valid, cache=cache).states)
        side = "left" if left else "right"
        for row, n in enumerate(LENGTHS):
            what = f"prompt of {n} tokens, padded {side}"
            same(logits[row, valid[row]], alone[row][:n], what, 2e-5)
        for step in range(NEW):
            tokens = torch.stack([rows[i][n + step] for i, n in enumerate(LENGTHS)])[:, None]
            logits = model.logits(model(tokens, cache=cache).states)
            for row, n in enumerate(LENGTHS):
                what = f"new token {step} after {n}, padded {side}"
                same(logits[row, 0], alone[row][n + step], what, 2e-5)


@contract(*DECODES)
@torch.no_grad()
def decodes_in_bfloat16(subject: Subject) -> None:
    """In bfloat16, and under autocast, cached logits are near those of the full pass."""
    tokens = tiny.tokens(2, 8)
    for what in ("bfloat16", "autocast"):
        model = decoder(subject)
        if what == "bfloat16":
            model = model.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=what == "autocast"):
            cache = model.new_cache(2, 8)
            parts = [model(part, cache=cache).states for part in tokens.split((4, 1, 3), dim=1)]
            found = model.logits(torch.cat(parts, 1)).float()
            exact = model.logits(model(tokens).states).float()
        error = float((found - exact).norm() / exact.norm())
        expect(error < 0.05, f"{what}: cached logits are off by {error:.0%} of their size")


@contract("model.attn")
@torch.no_grad()
def cache_reorders(subject: Subject) -> None:
    """After `reorder` each row goes on from the row it was taken from."""
    model = decoder(subject)
    tokens = tiny.tokens(3, 8)
    cache = model.new_cache(3, 8)
    model(tokens[:, :6], cache=cache)
    order = torch.tensor([2, 0, 0])
    cache.reorder(order)
    found = model.logits(model(tokens[order, 6:7], cache=cache).states)[:, 0]
    for row, source in enumerate(order.tolist()):
        same(found[row], full(model, tokens[source])[6], f"row {row} taken from {source}", 2e-5)


@contract("model.attn")
@torch.no_grad()
def cache_crops(subject: Subject) -> None:
    """After `crop(4)` rows go on from their first four tokens; a crop beyond their end is none."""
    model = decoder(subject)
    tokens, other = tiny.tokens(2, 6), tiny.tokens(2, 1, seed=5)
    cache = model.new_cache(2, 8)
    model(tokens, cache=cache)
    for kept in (8, 4):
        cache.crop(kept)
        found = model.logits(model(other, cache=cache).states)[:, 0]
        for row in range(2):
            whole = torch.cat((tokens[row, :kept], other[row]))
            same(found[row], full(model, whole)[-1], f"token after crop({kept})", 2e-5)


@contract("model.attn")
@torch.no_grad()
def cache_belongs_to_the_call(subject: Subject) -> None:
    """Two caches of one model do not meet, and a full pass between steps changes nothing."""
    model = decoder(subject)
    one, two = tiny.tokens(1, 6, seed=1), tiny.tokens(1, 6, seed=2)
    caches = [model.new_cache(1, 6) for _ in range(2)]
    parts: list[list[Tensor]] = [[], []]
    for step in range(6):
        for row, tokens in enumerate((one, two)):
            at = tokens[:, step : step + 1]
            parts[row].append(model.logits(model(at, cache=caches[row]).states)[0])
            model(tiny.tokens(2, 5, seed=3))
    for row, tokens in enumerate((one, two)):
        same(torch.cat(parts[row]), full(model, tokens[0]), f"row {row} of two interleaved", 2e-5)
    differ(torch.cat(parts[0]), torch.cat(parts[1]), "two different rows")


@contract("model.attn")
@torch.no_grad()
def cache_reports_its_size(subject: Subject) -> None:
    """`bytes_per_token` is a number of bytes, and halves at half the width of numbers."""
    wide, narrow = decoder(subject), decoder(subject).bfloat16()
    sizes = [model.new_cache(1, 8).bytes_per_token() for model in (wide, narrow)]
    expect(sizes[0] >= 0, f"bytes_per_token is {sizes[0]}")
    expect(sizes[1] * 2 == sizes[0], f"{sizes[0]} bytes in float32, {sizes[1]} in bfloat16")
