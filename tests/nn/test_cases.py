"""Cases MASK-01, MASK-02, MASK-04, ATTN-03, KV-01 and KV-05 of attention, each kind in full."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.nn.test_backend import able
from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.models.generate import generate
from txlab.models.sampling import Sampling
from txlab.nn.attention import attention
from txlab.nn.backend import Math, backend
from txlab.nn.mask import Mask
from txlab.nn.position import position
from txlab.testing.tiny import DIMS, floats, model, padded, tokens

TRAINING = [*able(trains=True)]


def decoders(pos: str, **choices: Any) -> Iterator[tuple[str, Decoder]]:
    """A model of every attention option that takes the scheme, windows narrow where there are."""
    for name, option in attention.options.items():
        fields = {"window": 4} if "window" in option.config.__dataclass_fields__ else {}
        try:
            config = option.config(**fields)
            yield name, model(attn=config, pos=position.config(pos), **choices)
        except RequestError as refused:
            if f"model.attn={name}: model.pos={pos}" not in str(refused):
                raise


def logits(decoder: Decoder, ids: Tensor, **inputs: Any) -> Tensor:
    return decoder.logits(decoder(ids, **inputs).states)


@pytest.mark.parametrize("pos", position.options)
@torch.no_grad()
def test_mask_01_short_prompts_in_a_left_padded_batch_are_as_alone(pos: str) -> None:
    lengths = (3, 8)
    valid = padded(lengths, left=True)
    rows = [tokens(1, n, seed=n)[0] for n in lengths]
    ids = torch.full(valid.shape, 5)
    for row, one in enumerate(rows):
        ids[row, valid[row]] = one
    for name, decoder in decoders(pos):
        for cache in (None, decoder.new_cache(2, 8)):
            found = logits(decoder, ids, valid=valid, cache=cache)
            for row, one in enumerate(rows):
                expected = logits(decoder, one[None])[0]
                torch.testing.assert_close(
                    found[row, valid[row]], expected, atol=1e-5, rtol=1e-4, msg=name
                )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", TRAINING)
def test_mask_02_rows_that_see_nothing_poison_nothing(kind: str, dtype: torch.dtype) -> None:
    valid = torch.ones(3, 7, dtype=torch.bool)
    valid[0, :2] = False
    valid[1] = False
    ids = tokens(3, 7)
    decoder = model(backend=backend.config(kind)).to(dtype)
    found = logits(decoder, ids, valid=valid)
    assert found.isfinite().all()
    found[valid].float().square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    near = 1e-5 if dtype == torch.float32 else 5e-2
    for row, begin in ((0, 2), (2, 0)):
        alone = logits(decoder, ids[row : row + 1, begin:])[0]
        torch.testing.assert_close(found[row, begin:], alone, atol=near, rtol=near)


@pytest.mark.parametrize("kind", backend.options)
@torch.no_grad()
def test_mask_04_a_packed_document_is_as_alone(kind: str) -> None:
    documents = (torch.arange(12) >= 5).long()[None]
    places = torch.where(documents == 0, torch.arange(12), torch.arange(12) - 5)
    ids, other = tokens(1, 12), torch.cat((tokens(1, 5, seed=7), tokens(1, 12)[:, 5:]), 1)
    for pos in ("rope", "alibi", "learned"):
        if pos == "alibi" and kind not in able("score"):
            continue
        decoder = model(backend=backend.config(kind), pos=position.config(pos))
        found = logits(decoder, ids, documents=documents, positions=places)[:, 5:]
        changed = logits(decoder, other, documents=documents, positions=places)[:, 5:]
        torch.testing.assert_close(changed, found, atol=1e-6, rtol=0)
        torch.testing.assert_close(found, logits(decoder, ids[:, 5:]), atol=1e-5, rtol=1e-5)


def slope(h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return -0.1 * (h + 1) * (q - k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [name for name in able("score") if name != "math"])
def test_attn_03_lengths_in_turn_through_one_backend(kind: str, dtype: torch.dtype) -> None:
    math = Math(Math.Config(), DIMS)
    built = backend.build(backend.config(kind), DIMS).pick(frozenset({"score"}))
    trains = built.trains(torch.device("cpu"))
    near = 1e-4 if dtype == torch.float32 else 2e-2
    for t in (1, 127, 128, 129, 1025):
        # Another mask a length: documents, and a window from 128 on.
        documents = (torch.arange(t) >= t // 3).long()[None]
        mask = Mask(t, t, documents=documents).narrow(window=None if t < 128 else 100)
        found = []
        for each, kept in ((built, dtype), (math, torch.float32)):
            q, k, v = (floats(1, n, t, 8, seed=n).to(dtype).to(kept) for n in (2, 1, 1))
            leaves = [x.requires_grad_(trains) for x in (q, k, v)]
            y = each.attend(*leaves, mask, scale=0.3, score=slope)
            assert y.isfinite().all()
            grads = torch.autograd.grad(y.float().sin().sum(), leaves) if trains else ()
            found.append([x.detach().float() for x in (y, *grads)])
        for one, other in zip(*found, strict=True):
            wide = near * max(1.0, float(other.abs().max()))
            torch.testing.assert_close(one, other, atol=wide, rtol=near, msg=f"{t} tokens")


@pytest.mark.parametrize("pos", position.options)
@torch.no_grad()
def test_kv_01_uneven_rows_decode_as_if_alone(pos: str) -> None:
    lengths, new = (3, 7, 12), 10
    rows = [tokens(1, n + new, seed=n)[0] for n in lengths]
    valid = padded(lengths, left=True)
    prompt = torch.full(valid.shape, 5)
    for row, n in enumerate(lengths):
        prompt[row, valid[row]] = rows[row][:n]
    for name, decoder in decoders(pos):
        alone = [logits(decoder, row[None])[0] for row in rows]
        cache = decoder.new_cache(3, max(lengths) + new)
        logits(decoder, prompt, valid=valid, cache=cache)
        for step in range(new):
            ids = torch.stack([rows[i][n + step] for i, n in enumerate(lengths)])[:, None]
            found = logits(decoder, ids, cache=cache)[:, 0]
            expected = torch.stack([alone[i][n + step] for i, n in enumerate(lengths)])
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("pos", position.options)
def test_kv_05_a_full_context_is_a_reason_to_stop_and_never_passed(pos: str) -> None:
    for _, decoder in decoders(pos):
        decoder.dims = replace(decoder.dims, context=16)
        if decoder.pos.limit() is not None:
            decoder.config.context = 16
        sampling = Sampling(max_new_tokens=6, temperature=0.0)
        answers = [generate(decoder, [[1] * n], sampling)[0] for n in (12, 16)]
        assert [len(answer.tokens) for answer in answers] == [4, 0]
        assert [answer.reason for answer in answers] == ["context full"] * 2
        with pytest.raises(RequestError, match=r"prompt 1 has 18 tokens, .* context is 16"):
            generate(decoder, [[1] * 18], sampling)
