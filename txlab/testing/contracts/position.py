"""Positional schemes: they tell order, relative ones only that, and exactly in any precision."""

from typing import Any

import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.testing import tiny
from txlab.testing.assertions import differ, finite, refused, same
from txlab.testing.harness import Subject, contract
from txlab.testing.probes import PositionProbe, attention_around, probe

POSITION = "model.pos"


def relative(subject: Subject) -> bool:
    """Whether nothing is added to embeddings, so that only differences of positions can count."""
    return not subject.overrides("embed")


def rotates(subject: Subject) -> bool:
    """Whether queries and keys are turned."""
    return subject.option.cls.rotates


def queries(built: PositionProbe, t: int, seed: int) -> Tensor:
    return tiny.floats(1, built.dims.n_heads, t, built.dims.head_dim, seed=seed)


@contract(POSITION)
def tells_order(subject: Subject) -> None:
    """The same token at two places has two outputs, under attention that sees both ways."""
    built = probe(subject)
    x = built.inputs(1, 1).expand(1, 6, -1).clone()
    x[:, 0] = built.inputs(1, 1, seed=5)[:, 0]
    y = built(x)
    for i in range(1, 5):
        differ(y[:, i], y[:, i + 1], f"outputs of equal tokens at positions {i} and {i + 1}", 1e-5)


@contract(POSITION, when=relative)
def shift_invariant(subject: Subject) -> None:
    """Scores depend on the distance of query and key only, also far out."""
    built = probe(subject).double()
    q, k = queries(built, 8, 1).double(), queries(built, 8, 2).double()
    base = built.scores(q, k, torch.arange(8)[None])
    for shift in (1, 100, 1000):
        found = built.scores(q, k, torch.arange(shift, shift + 8)[None])
        same(found, base, f"scores at positions shifted by {shift}", 1e-3)


@contract(POSITION, when=rotates)
def rotation_keeps_norms(subject: Subject) -> None:
    """Turned queries and keys are as long as before, and unturned at position 0."""
    built = probe(subject)
    q, k = queries(built, 9, 1), queries(built, 9, 2)
    angles = built.part.prepare(torch.arange(9)[None])
    for x, y in zip((q, k), built.part.rotate(q, k, angles), strict=True):
        same(y.norm(dim=-1), x.norm(dim=-1), "length after turning", 1e-5)
        same(y[:, :, 0], x[:, :, 0], "position 0", 1e-6)
        differ(y[:, :, 1:], x[:, :, 1:], "positions after 0")


@contract(POSITION)
def exact_in_bfloat16(subject: Subject) -> None:
    """A bfloat16 model's positions up to 4095 are the float32 ones, rounded once."""
    built, cast = probe(subject), probe(subject).bfloat16()
    limit = built.part.limit() or 4096
    positions = torch.arange(max(0, limit - 300), limit)[None]
    n = positions.shape[1]
    x = built.inputs(1, n).bfloat16()
    exact = built.part.embed(x.float(), positions)
    same(cast.part.embed(x, positions).float(), exact, "embeddings in bfloat16", 2e-2)
    q, k = (queries(built, n, seed).bfloat16() for seed in (1, 2))
    wide = built.part.rotate(q.float(), k.float(), built.part.prepare(positions))
    for found, exact in zip(
        cast.part.rotate(q, k, cast.part.prepare(positions)), wide, strict=True
    ):
        same(found.float(), exact, "rotation in bfloat16", 3e-2)
    if built.part.scores:
        at = (torch.arange(built.dims.n_heads).view(1, -1, 1, 1), positions[:, None, :, None])
        keys = positions[:, None, None, :]
        exact = built.part.score(*at, keys).float()
        same(cast.part.score(*at, keys).float(), exact, "score in bfloat16", 1e-2)


@contract(POSITION)
def restarts_with_documents(subject: Subject) -> None:
    """A packed document has the logits it has alone: positions restart at 0."""
    model = tiny.model(pos=subject.config())
    first, second = tiny.tokens(1, 5, seed=1), tiny.tokens(1, 7, seed=2)
    documents = (torch.arange(12) >= 5).long()[None]
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    packed = model(torch.cat([first, second], 1), documents=documents, positions=positions).states
    same(packed[:, :5], model(first).states, "first document of a packed row", 1e-5)
    same(packed[:, 5:], model(second).states, "second document of a packed row", 1e-5)


@contract(POSITION)
@torch.no_grad()
def padding_takes_no_position(subject: Subject) -> None:
    """A padded row has the states it has alone, on a cache or not: pads are not counted."""
    model = tiny.model(pos=subject.config())
    tokens = tiny.tokens(2, 8)
    for side, valid in tiny.paddings((4, 8)).items():
        for what, cache in (("a full pass", None), ("a cache", model.new_cache(2, 8))):
            states = model(tokens, valid=valid, cache=cache).states
            for row, at in enumerate(valid):
                alone = model(tokens[row : row + 1, at]).states[0]
                n = f"row of {len(alone)} tokens, padded {side}, on {what}"
                same(states[row, at], alone, n, 1e-5)


@contract(POSITION)
def says_where_it_ends(subject: Subject) -> None:
    """Past its last position a scheme with a limit is refused by number; one without goes on."""
    model = tiny.model(pos=subject.config())
    limit = model.pos.limit()
    if limit is None:
        n = 4 * tiny.DIMS.context
        try:
            with torch.no_grad():
                states = model(tiny.tokens(1, n)).states
        except Exception as error:
            kind = type(error).__name__
            raise AssertionError(f"limit() names no end, but {n} tokens raise {kind}") from error
        finite(states, f"states of {n} tokens")
        return
    tokens = tiny.tokens(1, limit + 1)
    with torch.no_grad():
        finite(model(tokens[:, :limit]).states, f"all {limit} positions")
    for what, cache in (("a full pass", None), ("decoding", model.new_cache(1, limit + 8))):
        error: Any = None
        try:
            with torch.no_grad():
                model(tokens, cache=cache)
        except (RequestError, IndexError, RuntimeError) as caught:
            error = caught
        refused(error, (limit, limit + 1), f"{what} of {limit + 1} tokens")


@contract(POSITION)
def serves_grouped_heads(subject: Subject) -> None:
    """Fewer key heads than query heads are turned like those of the full set."""
    built = probe(subject)
    q, k = queries(built, 6, 1), queries(built, 6, 2)
    angles = built.part.prepare(torch.arange(6)[None])
    full = built.part.rotate(q, k, angles)[1]
    same(built.part.rotate(q, k[:, :1], angles)[1], full[:, :1], "one key head of four", 1e-6)


@contract(POSITION)
def works_inside_attention(subject: Subject) -> None:
    """Inside causal attention it changes the output, and does so by position, not by call."""
    with tiny.seeded(0):
        scheme = subject.build(tiny.DIMS)
    tiny.shake(scheme)
    built = attention_around(scheme, tiny.DIMS)
    x = built.inputs(1, 6)
    at, far = torch.arange(6)[None], (torch.arange(6) * 2)[None]

    def run(positions: Tensor) -> Tensor:
        return built(scheme.embed(x, positions), positions=positions)

    same(run(at), run(at), "the same positions again", 0.0)
    if not scheme.scores:
        # A score reads indices, which the mask gives; `tells_order` covers it.
        differ(run(at), run(far), "outputs at positions twice as far apart", 1e-5)
