"""Counts known from print, tied weights, and what a model refuses."""

import copy
import io
from dataclasses import replace

import pytest
import torch

from txlab.core.errors import RequestError
from txlab.models import Decoder
from txlab.nn.attention import GQA, MHA
from txlab.nn.ffn import SwiGLU
from txlab.nn.norm import RMSNorm
from txlab.nn.position import Learned, NoPosition, RoPE
from txlab.testing.tiny import DIMS, model, tokens

LLAMA_7B = Decoder.Config(
    dim=4096,
    n_layers=32,
    n_heads=32,
    context=4096,
    vocab_size=32_000,
    tie_embeddings=False,
    attn=MHA.Config(),
    pos=RoPE.Config(),
    norm=RMSNorm.Config(),
    ffn=SwiGLU.Config(hidden=11008),
)


def on_meta(config: Decoder.Config) -> Decoder:
    with torch.device("meta"):
        return Decoder(config, config.dims())


def test_llama_7b_has_as_many_parameters_as_printed() -> None:
    decoder = on_meta(LLAMA_7B)
    assert sum(p.numel() for p in decoder.layers[0].parameters()) == 202_383_360
    assert sum(p.numel() for p in decoder.parameters()) == 6_738_415_616


@pytest.mark.parametrize(("attn", "expected"), [(MHA.Config(), 524_288), (GQA.Config(), 131_072)])
def test_cache_bytes_a_token_at_16_bit(attn: MHA.Config | GQA.Config, expected: int) -> None:
    config = copy.copy(LLAMA_7B)
    config.attn = attn
    decoder = on_meta(config).to(torch.bfloat16)
    cache = decoder.new_cache(1, 8)
    assert cache.bytes_per_token() == expected
    storage = sum(t.nbytes for layer in cache.layers for t in (layer.k, layer.v))
    assert storage == 9 * expected


def tied(decoder: Decoder) -> bool:
    return (
        decoder.head.weight is decoder.embed.weight
        and decoder.head.weight.data_ptr() == decoder.embed.weight.data_ptr()
        and sum(p is decoder.embed.weight for p in decoder.parameters()) == 1
    )


def test_tied_weights_stay_one_tensor() -> None:
    decoder = model()
    assert tied(decoder)
    decoder.load_state_dict(model(seed=3).state_dict())
    assert tied(decoder)
    split = {name: tensor.clone() for name, tensor in model(seed=4).state_dict().items()}
    decoder.load_state_dict(split, assign=True)
    assert tied(decoder)
    assert tied(copy.deepcopy(decoder))
    assert tied(decoder.to(torch.bfloat16))
    assert tied(decoder.to("meta"))
    assert tied(on_meta(decoder.config).to_empty(device="cpu"))
    file = io.BytesIO()
    torch.save(model(), file)
    file.seek(0)
    assert tied(torch.load(file, weights_only=False))
    assert not tied(model(tie_embeddings=False))


def test_the_gradient_of_tied_weights_is_the_sum_of_both_uses() -> None:
    decoder = model()
    free = model(tie_embeddings=False)
    free.load_state_dict(decoder.state_dict())
    ids = tokens(2, 6)
    for m in (decoder, free):
        m.logits(m(ids).states).logsumexp(-1).sum().backward()
    expected = free.embed.weight.grad + free.head.weight.grad
    torch.testing.assert_close(decoder.embed.weight.grad, expected, atol=1e-5, rtol=1e-5)


def test_a_model_without_positions_or_cache_matches_one_token_at_a_time() -> None:
    decoder = model(pos=NoPosition.Config())
    ids = tokens(2, 6)
    with torch.no_grad():
        whole = decoder(ids).states
        for n in range(1, 7):
            part = decoder(ids[:, :n]).states[:, -1]
            torch.testing.assert_close(part, whole[:, n - 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cached", [False, True])
def test_learned_positions_end_with_the_context(cached: bool) -> None:
    decoder = model(replace(DIMS, context=8), pos=Learned.Config())
    decoder(tokens(1, 8), cache=decoder.new_cache(1, 8) if cached else None)
    with pytest.raises(RequestError, match=r"9 tokens, but model.pos=learned has only 8"):
        decoder(tokens(1, 9), cache=decoder.new_cache(1, 12) if cached else None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 30}, r"model.dim=30 is not a multiple of model.n_heads=4"),
        ({"n_layers": 0}, "n_layers=0"),
        ({"context": -1}, "context=-1"),
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"head_dim": 0}, "head_dim=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Decoder.Config(**fields)


def test_a_vocabulary_size_is_needed() -> None:
    with pytest.raises(RequestError, match=r"model\.vocab_size is not set"):
        Decoder.Config().dims()
