"""Decoding state: where tokens go, lengths per row, reordering, cropping, the end."""

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.nn.cache import Cache
from txlab.testing.tiny import model, tokens

CPU = torch.device("cpu")


def logits(decoder: Decoder, ids: torch.Tensor, **inputs) -> torch.Tensor:
    return decoder.logits(decoder(ids, **inputs).states)


def test_even_rows_are_counted_by_a_number() -> None:
    cache = Cache([], 8)
    mask, positions = cache.place(2, 3, None, CPU)
    assert (mask.n_keys, mask.q_index, positions.tolist()) == (3, 0, [[0, 1, 2]])
    mask, positions = cache.place(2, 1, torch.ones(2, 1, dtype=torch.bool), CPU)
    assert (mask.n_keys, mask.q_index, positions.tolist()) == (4, 3, [[3]])
    assert cache.lengths == cache.longest == 4


def test_uneven_rows_keep_their_own_lengths() -> None:
    cache = Cache([], 8)
    valid = torch.tensor([[False, True, True], [True, True, True], [False] * 3])
    mask, positions = cache.place(3, 3, valid, CPU)
    assert cache.lengths.tolist() == [2, 3, 0]
    assert mask.n_keys == 3
    assert positions[valid].tolist() == [0, 1, 0, 1, 2]
    # Padding is written behind the end, where no key is ever read.
    assert mask.q_index[~valid].tolist() == [8] * 4
    mask, positions = cache.place(3, 1, None, CPU)
    assert positions.tolist() == mask.q_index.tolist() == [[2], [3], [0]]
    assert cache.longest == mask.n_keys == 4


def test_a_full_cache_refuses_more_with_both_numbers() -> None:
    decoder = model()
    cache = decoder.new_cache(1, 5)
    decoder(tokens(1, 5), cache=cache)
    with pytest.raises(RequestError, match="holds 5 tokens a row and 6 are needed"):
        decoder(tokens(1, 1), cache=cache)
    valid = torch.tensor([[True] * 6, [False] * 6])
    with pytest.raises(RequestError, match="holds 5 tokens a row and 6 are needed"):
        decoder(tokens(2, 6), valid=valid, cache=decoder.new_cache(2, 5))


@torch.no_grad()
def test_reordered_rows_go_on_as_the_rows_they_were() -> None:
    decoder = model()
    ids, new = tokens(3, 6), tokens(4, 2, seed=4)
    valid = torch.arange(6) < torch.tensor([2, 6, 4])[:, None]
    cache = decoder.new_cache(3, 8)
    decoder(ids, valid=valid, cache=cache)
    rows = torch.tensor([2, 0, 2, 1])
    cache.reorder(rows)
    found = torch.cat([logits(decoder, new[:, [i]], cache=cache) for i in range(2)], 1)
    for i, row in enumerate(rows.tolist()):
        whole = torch.cat((ids[row][valid[row]], new[i]))[None]
        alone = logits(decoder, whole)[:, -2:]
        torch.testing.assert_close(found[i : i + 1], alone, atol=1e-5, rtol=1e-5)
    cache.reorder(torch.tensor([0, 2]))
    assert cache.lengths == cache.longest == 6


@torch.no_grad()
@pytest.mark.parametrize("even", [True, False])
def test_a_cropped_cache_has_forgotten_the_end(even: bool) -> None:
    decoder = model()
    ids, new = tokens(2, 6), tokens(2, 3, seed=4)
    lengths = (6, 6) if even else (3, 6)
    valid = torch.arange(6) < torch.tensor(lengths)[:, None]
    cache = decoder.new_cache(2, 9)
    decoder(ids, valid=valid, cache=cache)
    cache.crop(4)
    found = logits(decoder, new, cache=cache)
    for row, n in enumerate(lengths):
        whole = torch.cat((ids[row, : min(n, 4)], new[row]))[None]
        alone = logits(decoder, whole)[:, -3:]
        torch.testing.assert_close(found[row : row + 1], alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_an_untouched_slot_is_never_read() -> None:
    decoder = model()
    cache = decoder.new_cache(2, 9)
    for layer in cache.layers:
        layer.k.fill_(float("nan"))
        layer.v.fill_(float("nan"))
    ids = tokens(2, 5)
    assert logits(decoder, ids, cache=cache).isfinite().all()
    assert logits(decoder, ids[:, :1], cache=cache).isfinite().all()


def test_decoding_state_follows_autocast_and_the_models_dtype() -> None:
    decoder = model()
    assert decoder.new_cache(1, 4).layers[0].k.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        cache = decoder.new_cache(1, 4)
        assert cache.layers[0].k.dtype == torch.bfloat16
        decoder(tokens(1, 3), cache=cache)
        decoder(tokens(1, 1), cache=cache)
    assert decoder.to(torch.bfloat16).new_cache(1, 4).layers[0].k.dtype == torch.bfloat16
