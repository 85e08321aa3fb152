"""Rows beside other rows: padding, packing, windows, each against the row alone."""

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.refused import refusal
from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.nn.attention import GQA, attention
from txlab.nn.backend import Math, backend
from txlab.nn.position import position
from txlab.testing.tiny import DIMS, model, padded, paddings, tokens

POSITIONS = tuple(position.options)
BACKENDS = tuple(backend.options)


def logits(decoder: Decoder, ids: Tensor, **inputs) -> Tensor:
    return decoder.logits(decoder(ids, **inputs).states)


def fields(attn: str, window: int | None) -> dict[str, Any] | None:
    """The option's fields with that window; None where it has none to set."""
    known = {f.name for f in dataclass_fields(attention.option(attn).config)}
    if window is None:
        return {}
    return {"window": window} if "window" in known else None


def rows_alone(decoder: Decoder, where: str) -> None:
    """Rows padded left, right and between their tokens are what they are alone, one cache or not.

    Also the tokens decoded after them on the cache, and with a row of nothing but padding.
    """
    lengths, new = (3, 8, 0), 2
    ids, later = tokens(3, 8), tokens(3, new, seed=4)
    for side, valid in paddings(lengths).items():
        cache = decoder.new_cache(3, 8 + new)
        full = logits(decoder, ids, valid=valid)
        first = logits(decoder, ids, valid=valid, cache=cache)
        assert full.isfinite().all()
        assert first.isfinite().all()
        after = torch.cat([logits(decoder, later[:, [i]], cache=cache) for i in range(new)], 1)
        for row, n in enumerate(lengths[:2]):
            alone = logits(decoder, torch.cat((ids[row, valid[row]], later[row]))[None])[0]
            for what, found, wanted in (
                ("full", full[row, valid[row]], alone[:n]),
                ("cached", first[row, valid[row]], alone[:n]),
                ("decoded", after[row], alone[n:]),
            ):
                off = float((found - wanted).abs().max())
                assert off < 1e-5 * max(1, float(wanted.abs().max())), (where, side, what, n, off)


def combinations(attn: str, *, every: bool) -> list[tuple[str, str]]:
    """Schemes and backends that go with the attention; a share of them that has each of both."""
    pairs = [(pos, name) for pos in POSITIONS for name in BACKENDS]
    if not every:
        some = {("rope", "math"), ("alibi", "sdpa"), ("t5", "banded"), ("rope", "flash")}
        pairs = [pair for pair in pairs if pair[1] == "auto" or pair in some]
    return [pair for pair in pairs if refusal(attn, *pair) is None]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("attn", attention.options)
@torch.no_grad()
def test_padded_rows_are_what_they_are_alone(attn: str, every: bool) -> None:
    """MASK-01: every attention with every positional scheme; if slow, on every backend."""
    pairs = combinations(attn, every=every)
    if every:
        assert len(pairs) == {"linear": 4, "flash": 8}.get(attn, 34)
    for window in (None, 2):
        wanted = fields(attn, window)
        for pos, name in pairs if wanted is not None else ():
            config = attention.config({"name": attn, **wanted})
            choices = {"pos": position.config(pos), "backend": backend.config(name)}
            rows_alone(model(attn=config, **choices), f"window={window}, {pos}, {name}")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 2])
def test_rows_that_see_nothing_stay_finite_forward_and_backward(
    name: str, dtype: torch.dtype, window: int | None
) -> None:
    decoder = model(backend=backend.config(name), attn=GQA.Config(window=window)).to(dtype)
    ids, valid = tokens(3, 7), padded((5, 0, 7), left=True)
    trains = all(kernel.trains(ids.device) for kernel in decoder.layers.kernels())
    assert trains == (name != "flex")
    with torch.set_grad_enabled(trains):
        found = logits(decoder, ids, valid=valid).float()
        alone = logits(decoder, ids[:1, 2:]).float()
    assert found.isfinite().all()
    if trains:
        (found * valid[..., None]).square().sum().backward()
        for parameter in decoder.parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
    bound = 1e-5 if dtype == torch.float32 else 6e-2
    torch.testing.assert_close(found[:1, 2:], alone, atol=bound, rtol=bound)


@pytest.mark.parametrize(
    ("name", "pos"),
    [(name, pos) for name in BACKENDS for pos in POSITIONS if not refusal("gqa", pos, name)],
)
@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_packed_documents_do_not_see_each_other(name: str, pos: str, window: int | None) -> None:
    decoder = model(
        backend=backend.config(name),
        pos=position.config(pos),
        attn=GQA.Config(window=window),
    )
    first, other, second = tokens(2, 5), tokens(2, 5, seed=9), tokens(2, 6, seed=2)
    packing = {
        "documents": torch.tensor([[0] * 5 + [1] * 6]).expand(2, -1),
        "positions": torch.tensor([[*range(5), *range(6)]]),
    }
    packed = logits(decoder, torch.cat((first, second), 1), **packing)
    changed = logits(decoder, torch.cat((other, second), 1), **packing)
    assert not torch.allclose(packed[:, :5], changed[:, :5])
    torch.testing.assert_close(packed[:, 5:], changed[:, 5:], atol=1e-6, rtol=0)
    torch.testing.assert_close(packed[:, 5:], logits(decoder, second), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed[:, :5], logits(decoder, first), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("attn", "pos"),
    [(attn, p) for attn in attention.options for p in POSITIONS if not refusal(attn, p, "auto")],
)
@torch.no_grad()
def test_decoding_keeps_each_row_at_its_own_length(attn: str, pos: str) -> None:
    for window in (None, 4):
        wanted = fields(attn, window)
        if wanted is not None:
            config = attention.config({"name": attn, **wanted})
            decodes_as_if_alone(model(pos=position.config(pos), attn=config))


def decodes_as_if_alone(decoder: Decoder) -> None:
    ids, lengths = tokens(3, 12), (3, 7, 12)
    new = tokens(3, 10, seed=3)
    cache = decoder.new_cache(3, 22)
    # Right-padded here: the cache moves each row's tokens to its own front.
    valid = torch.arange(12) < torch.tensor(lengths)[:, None]
    decoder(ids, valid=valid, cache=cache)
    found = torch.cat([logits(decoder, new[:, [i]], cache=cache) for i in range(10)], 1)
    for row, n in enumerate(lengths):
        alone = logits(decoder, torch.cat((ids[row, :n], new[row]))[None])
        torch.testing.assert_close(found[row], alone[0, n:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("n_layers", "reach"), [(1, 2), (2, 4)])
@pytest.mark.parametrize("cached", [False, True])
@torch.no_grad()
def test_a_window_of_three_reaches_two_tokens_a_layer(
    n_layers: int, reach: int, cached: bool
) -> None:
    config = Decoder.Config(
        dim=16, n_layers=n_layers, n_heads=2, vocab_size=61, attn=GQA.Config(window=3)
    )
    torch.manual_seed(0)
    decoder = Decoder(config, config.dims()).eval()
    decoder.embed.weight.mul_(50)
    ids = tokens(1, 9)

    def last(ids: Tensor) -> Tensor:
        if not cached:
            return logits(decoder, ids)[0, -1]
        cache = decoder.new_cache(1, 9)
        return [logits(decoder, ids[:, [i]], cache=cache) for i in range(9)][-1][0, -1]

    base, seen = last(ids), []
    for distance in range(9):
        other = ids.clone()
        other[0, 8 - distance] = (ids[0, 8 - distance] + 1) % 61
        if not torch.equal(last(other), base):
            seen.append(distance)
    assert seen == list(range(reach + 1))


@torch.no_grad()
def test_angles_are_those_of_float32_in_a_bfloat16_model() -> None:
    decoder = model(replace(DIMS, context=4096)).to(torch.bfloat16)
    positions = torch.arange(4096)[None]
    cos, sin = decoder.pos.prepare(positions)
    exact = positions[0, :, None] * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    for found, expected in ((cos, exact.cos()), (sin, exact.sin())):
        magnitude = found[0, 0, :, 4:].to(torch.bfloat16).float()
        torch.testing.assert_close(magnitude, expected, atol=4e-3, rtol=0)
    assert len({tuple(row) for row in cos[0, 0].tolist()}) == 4096
    assert not list(decoder.pos.buffers())


def test_packing_and_cache_exclude_each_other() -> None:
    decoder = model(backend=Math.Config())
    documents = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(RequestError, match="documents and cache exclude each other"):
        decoder(tokens(1, 4), documents=documents, cache=decoder.new_cache(1, 4))
