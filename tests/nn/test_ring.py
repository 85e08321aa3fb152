"""The ring cache: what it holds, how it decodes in any chunks and rows, what it takes."""

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.attention import GQA, SWA
from txlab.nn.cache import KVCache
from txlab.nn.position import ALiBi
from txlab.nn.ring import RingCache
from txlab.testing.tiny import model, padded, tokens

CPU = torch.device("cpu")
FIELDS = [{"window": 3}, {"window": 3, "sinks": 2}, {"window": 1}, {"window": 4, "sinks": 1}]


def ring(window: int, sinks: int) -> RingCache:
    return RingCache(1, 1, 2, CPU, torch.float32, window=window, sinks=sinks)


def logits(decoder, ids: Tensor, **inputs) -> Tensor:
    return decoder.logits(decoder(ids, **inputs).states)


@pytest.mark.parametrize(
    ("sinks", "last", "held"),
    [
        (0, -1, [-1, -1, -1]),
        (0, 1, [0, 1, -1]),
        (0, 2, [0, 1, 2]),
        (0, 7, [6, 7, 5]),
        (2, -1, [-1] * 5),
        (2, 0, [0, -1, -1, -1, -1]),
        (2, 3, [0, 1, 2, 3, -1]),
        (2, 9, [0, 1, 8, 9, 7]),
    ],
)
def test_slots_hold_the_sinks_and_the_last_of_the_window(sinks: int, last: int, held: list) -> None:
    assert ring(3, sinks).content(torch.tensor([last])).tolist() == [held]


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("chunks", [(1,) * 12, (12,), (5, 1, 6), (2, 7, 1, 1, 1), (1, 11)])
@torch.no_grad()
def test_any_chunks_give_the_logits_of_the_full_pass(fields: dict, chunks: tuple) -> None:
    for pos in (None, ALiBi.Config()):
        choices = {} if pos is None else {"pos": pos}
        decoder = model(attn=SWA.Config(**fields), **choices)
        ids = tokens(2, 12)
        cache = decoder.new_cache(2, 12)
        assert isinstance(cache.layers[0], RingCache)
        found = [logits(decoder, part, cache=cache) for part in ids.split(chunks, 1)]
        torch.testing.assert_close(torch.cat(found, 1), logits(decoder, ids), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("fields", FIELDS)
@torch.no_grad()
def test_kv_01_rows_of_different_lengths_decode_as_if_alone(fields: dict, left: bool) -> None:
    """Also a second padded chunk, in which one row gets nothing, and rows reordered."""
    decoder = model(attn=GQA.Config(**fields))
    rows = [tokens(1, n + 8, seed=n)[0] for n in (3, 7, 12)]
    alone = [logits(decoder, row[None])[0] for row in rows]
    cache, at = decoder.new_cache(3, 20), [0, 0, 0]
    for sizes in ((3, 7, 12), (2, 0, 3), (1, 1, 1), (1, 1, 1), (0, 1, 1)):
        valid = padded(sizes, left=left)
        ids = torch.full(valid.shape, 5)
        for row, n in enumerate(sizes):
            ids[row, valid[row]] = rows[row][at[row] : at[row] + n]
        found = logits(decoder, ids, valid=valid, cache=cache)
        assert found.isfinite().all()
        for row, n in enumerate(sizes):
            expected = alone[row][at[row] : at[row] + n]
            torch.testing.assert_close(found[row, valid[row]], expected, atol=2e-5, rtol=1e-5)
            at[row] += n
    order = torch.tensor([2, 0])
    cache.reorder(order)
    ids = torch.stack([rows[row][at[row]] for row in (2, 0)])[:, None]
    found = logits(decoder, ids, cache=cache)[:, 0]
    expected = torch.stack([alone[row][at[row]] for row in (2, 0)])
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@torch.no_grad()
def test_one_row_without_a_window_and_one_with_share_a_model() -> None:
    from txlab.nn.pattern import Pattern

    decoder = model(pattern=Pattern(attn=[{"name": "swa", "window": 3, "sinks": 1}, "mha"]))
    cache = decoder.new_cache(2, 12)
    assert [type(layer) for layer in cache.layers] == [RingCache, KVCache]
    ids = tokens(2, 12)
    found = [logits(decoder, part, cache=cache) for part in ids.split((4, 1, 5, 2), 1)]
    torch.testing.assert_close(torch.cat(found, 1), logits(decoder, ids), atol=2e-5, rtol=1e-5)


@torch.no_grad()
def test_fixed_shapes_show_a_ring_of_one_size() -> None:
    decoder = model(attn=SWA.Config(window=3, sinks=1))
    ids = tokens(2, 12)
    cache = decoder.new_cache(2, 12)
    logits(decoder, ids[:, :4], cache=cache)
    cache.fix_shapes(2, CPU)
    found = [logits(decoder, ids[:, [i]], cache=cache) for i in range(4, 12)]
    expected = logits(decoder, ids)[:, 4:]
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=2e-5, rtol=1e-5)


def test_memory_is_that_of_the_window() -> None:
    decoder = model(attn=SWA.Config(window=5, sinks=2))
    layer = decoder.new_cache(2, 30).layers[0]
    assert layer.k.shape[2] == 5 + 2 + 1  # and the spare slot
    assert isinstance(decoder.new_cache(2, 7).layers[0], KVCache)
    assert type(decoder.new_cache(2, 7).layers[0]) is KVCache


@torch.no_grad()
def test_crop_goes_back_as_far_as_tokens_are_still_there() -> None:
    decoder = model(attn=SWA.Config(window=4))
    ids, other = tokens(1, 10), tokens(1, 3, seed=4)
    for kept, length in ((2, 4), (3, 4), (9, 10)):
        cache = decoder.new_cache(1, 20)
        logits(decoder, ids[:, :length], cache=cache)
        cache.crop(kept)
        found = logits(decoder, other, cache=cache)
        whole = torch.cat((ids[:, :kept], other), 1)
        torch.testing.assert_close(found, logits(decoder, whole)[:, kept:], atol=2e-5, rtol=1e-5)
    cache = decoder.new_cache(1, 20)
    logits(decoder, ids, cache=cache)
    with pytest.raises(RequestError, match=r"crop\(7\): a window of 4 tokens .* \(10 were cached"):
        cache.crop(7)
    cache.crop(9)
    with pytest.raises(RequestError, match=r"crop\(8\)"):
        cache.crop(8)
