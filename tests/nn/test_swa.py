"""The window, the sinks, the sink logit and the gate, by hand and by their influence."""

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.attention import GQA, MHA, SWA, SoftmaxAttention, attention
from txlab.nn.backend import Math, backend
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.pattern import Pattern
from txlab.nn.position import ALiBi, NoPosition
from txlab.testing.tiny import DIMS, floats, model, shake, tokens

SOFTMAX = [n for n, o in attention.options.items() if issubclass(o.cls, SoftmaxAttention)]


def dense(mask: Mask) -> Tensor:
    return mask.dense(torch.device("cpu"))[:, 0].int()


def run(mixer: SoftmaxAttention, x: Tensor, mask: Mask | None = None) -> Tensor:
    positions = torch.arange(x.shape[1])[None]
    scheme, kernel = NoPosition(NoPosition.Config(), DIMS), Math(Math.Config(), DIMS)
    mask = mask or Mask(x.shape[1], x.shape[1])
    return mixer(x, Context(mask, positions, scheme, positions, kernel))


def test_by_default_the_window_is_half_the_context() -> None:
    assert SWA(SWA.Config(), DIMS).window == DIMS.context // 2
    assert SWA(SWA.Config(window=7), DIMS).window == 7
    assert GQA(GQA.Config(), DIMS).window is None


def test_kv_03_a_window_of_three_sees_three_keys_and_two_layers_reach_four_back() -> None:
    assert dense(Mask(9, 9).narrow(window=3))[0, 5].nonzero().flatten().tolist() == [3, 4, 5]
    decoder = model(attn=SWA.Config(window=3))
    ids = tokens(1, 10)
    for cached in (False, True):
        reach = []
        for place in range(10):
            other = ids.clone()
            other[0, place] = (other[0, place] + 1) % DIMS.vocab_size
            ends = []
            for tried in (ids, other):
                cache = decoder.new_cache(1, 10) if cached else None
                parts = tried.split(1, 1) if cached else (tried,)
                ends.append([decoder(part, cache=cache).states[0, -1] for part in parts][-1])
            if not torch.equal(*ends):
                reach.append(9 - place)
        assert reach == [4, 3, 2, 1, 0], cached


def test_sinks_are_the_first_tokens_of_each_document() -> None:
    assert dense(Mask(6, 6).narrow(window=2, sinks=1)).tolist()[0] == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 0, 1, 1, 0, 0],
        [1, 0, 0, 1, 1, 0],
        [1, 0, 0, 0, 1, 1],
    ]
    documents = torch.tensor([[0, 0, 1, 1, 1, 1]])
    packed = dense(Mask(6, 6, documents=documents).narrow(window=2, sinks=1))[0]
    assert packed[5].tolist() == [0, 0, 1, 0, 1, 1]
    valid = torch.tensor([[False, False, True, True, True, True]])
    left = dense(Mask(6, 6, valid=valid).narrow(window=2, sinks=1))[0]
    assert left[5].tolist() == [0, 0, 1, 0, 1, 1]
    both = dense(Mask(6, 6, documents=documents, valid=valid).narrow(window=1, sinks=1))[0]
    assert both.tolist()[4:] == [[0, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize("name", SOFTMAX)
def test_sinks_without_a_window_are_refused(name: str) -> None:
    kind = attention.option(name).config
    if kind().windowed():
        assert kind(sinks=2).sinks == 2
        return
    with pytest.raises(RequestError, match=r"sinks=2 of option .*: expected 0 without a window"):
        kind(sinks=2)
    assert kind(sinks=2, window=4).sinks == 2


@pytest.mark.parametrize("name", [n for n in backend.options if n not in ("auto", "flex")])
@pytest.mark.parametrize("case", ["causal", "window", "full", "score", "one query"])
def test_a_sink_logit_is_a_term_of_the_denominator(name: str, case: str) -> None:
    kernel = backend.build(backend.config(name), DIMS)
    if "sink_logit" not in kernel.supports or (case == "score" and "score" not in kernel.supports):
        pytest.skip(f"{name} does not compute it")
    t = 1 if case == "one query" else 5
    mask = {
        "window": Mask(5, 5, window=2),
        "full": Mask(5, 5, causal=False),
        "one query": Mask(1, 5, q_index=4),
    }.get(case, Mask(5, 5))
    q, k, v = floats(2, 4, t, 8, seed=1), floats(2, 2, 5, 8, seed=2), floats(2, 2, 5, 8, seed=3)
    logit = floats(4, seed=4)
    score = {"score": lambda h, q, k: -0.2 * (h + 1) * (q - k)} if case == "score" else {}
    leaves = [x.requires_grad_() for x in (q, k, v, logit)]
    y = kernel.attend(q, k, v, mask, scale=0.3, sink_logit=logit, **score)
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) * 0.3
    if score:
        scores = scores + mask.bias(score["score"], 4, torch.device("cpu"))
    terms = scores.exp() * mask.dense(torch.device("cpu"))
    weights = terms / (terms.sum(-1, keepdim=True) + logit.exp().view(1, 4, 1, 1))
    expected = weights @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)
    weight = floats(*y.shape, seed=5)
    found = torch.autograd.grad((y * weight).sum(), leaves)
    wanted = torch.autograd.grad((expected * weight).sum(), leaves)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_a_gate_multiplies_the_heads_by_the_sigmoid_of_a_projection() -> None:
    gated, bare = MHA(MHA.Config(gate=True), DIMS), MHA(MHA.Config(), DIMS)
    shake(gated)
    bare.load_state_dict(gated.state_dict(), strict=False)
    x = floats(1, 5, 32)
    bare.o, o = torch.nn.Identity(), gated.o
    expected = o(run(bare, x) * torch.sigmoid(x @ gated.gate.weight.T))
    torch.testing.assert_close(run(gated, x), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pos", ["rope", "alibi"])
def test_mask_04_packed_documents_do_not_see_each_other_through_window_and_sinks(pos: str) -> None:
    choices = {"pos": ALiBi.Config()} if pos == "alibi" else {}
    for kind in ("math", "sdpa", "banded", "auto"):
        decoder = model(attn=SWA.Config(window=3, sinks=1), backend=backend.config(kind), **choices)
        ids, documents = tokens(1, 12), (torch.arange(12) >= 5).long()[None]
        positions = torch.where(documents == 0, torch.arange(12), torch.arange(12) - 5)
        found = decoder(ids, documents=documents, positions=positions).states
        other = torch.cat((tokens(1, 5, seed=7), ids[:, 5:]), 1)
        changed = decoder(other, documents=documents, positions=positions).states
        torch.testing.assert_close(changed[:, 5:], found[:, 5:], atol=1e-6, rtol=0)
        alone = decoder(ids[:, 5:]).states
        torch.testing.assert_close(found[:, 5:], alone, atol=2e-6, rtol=1e-5)


def test_a_pattern_mixes_local_and_global_layers() -> None:
    decoder = model(
        attn=SWA.Config(window=4), pattern=Pattern(attn=["swa", {"name": "mha", "window": None}])
    )
    assert [block.attn.window for block in decoder.layers] == [4, None]
