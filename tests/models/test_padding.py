"""Rows beside other rows: padding, packing, windows, each against the row alone."""

from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.nn.attention import GQA, attention
from txlab.nn.backend import Math, backend
from txlab.nn.position import position
from txlab.testing.tiny import DIMS, model, tokens

POSITIONS = tuple(position.options)
BACKENDS = tuple(backend.options)
NO_BIAS = ("cannot compute score", "adds a bias to the scores")
"""How a backend and a mixer refuse a scheme that biases scores."""


def logits(decoder: Decoder, ids: Tensor, **inputs) -> Tensor:
    return decoder.logits(decoder(ids, **inputs).states)


def left(length: int, lengths: tuple[int, ...]) -> Tensor:
    return torch.arange(length) >= length - torch.tensor(lengths)[:, None]


def built(**choices: Any) -> Decoder:
    """The model of these choices; the test is skipped where it is refused for its positions."""
    try:
        return model(**choices)
    except RequestError as error:
        scores = position.option_of(choices["pos"]).cls.scores
        if not scores or not any(said in str(error) for said in NO_BIAS):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("pos", POSITIONS)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_left_padded_rows_are_what_they_are_alone(
    pos: str, cached: bool, window: int | None
) -> None:
    decoder = model(pos=position.config(pos), attn=GQA.Config(window=window))
    ids, lengths = tokens(3, 8), (3, 8, 0)
    valid = left(8, lengths)
    cache = decoder.new_cache(3, 10) if cached else None
    found = logits(decoder, ids, valid=valid, cache=cache)
    assert found.isfinite().all()
    for row, n in enumerate(lengths[:2]):
        alone = logits(decoder, ids[row : row + 1, 8 - n :])
        torch.testing.assert_close(found[row, 8 - n :], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 2])
def test_rows_that_see_nothing_stay_finite_forward_and_backward(
    name: str, dtype: torch.dtype, window: int | None
) -> None:
    decoder = model(backend=backend.config(name), attn=GQA.Config(window=window)).to(dtype)
    ids, valid = tokens(3, 7), left(7, (5, 0, 7))
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


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("pos", POSITIONS)
@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_packed_documents_do_not_see_each_other(name: str, pos: str, window: int | None) -> None:
    decoder = built(
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


@pytest.mark.parametrize("pos", POSITIONS)
@pytest.mark.parametrize("attn", attention.options)
@pytest.mark.parametrize("window", [None, 4])
@torch.no_grad()
def test_decoding_keeps_each_row_at_its_own_length(pos: str, attn: str, window: int | None) -> None:
    fields = {f.name for f in dataclass_fields(attention.option(attn).config)}
    if window is not None and "window" not in fields:
        pytest.skip(f"model.attn={attn} has no window")
    wanted = {"window": window} if "window" in fields else {}
    decoder = built(pos=position.config(pos), attn=attention.config({"name": attn, **wanted}))
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


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@torch.no_grad()
def test_padding_may_stand_anywhere(side: str) -> None:
    decoder = model()
    ids = tokens(1, 5)
    at = {"left": [3, 4, 5, 6, 7], "right": [0, 1, 2, 3, 4], "middle": [0, 2, 3, 6, 7]}[side]
    wide, valid = tokens(1, 8, seed=5), torch.zeros(1, 8, dtype=torch.bool)
    wide[:, at], valid[:, at] = ids, True
    expected = logits(decoder, ids)
    for cache in (None, decoder.new_cache(1, 8)):
        found = logits(decoder, wide, valid=valid, cache=cache)[:, at]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


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
