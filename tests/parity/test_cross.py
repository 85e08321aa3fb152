"""Cross-attention of transformers (BART and T5), weights copied: same values, padding unseen."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, T5Config
from transformers.models.bart.modeling_bart import BartAttention
from transformers.models.t5.modeling_t5 import T5Attention

from txlab.nn.attention import CrossAttention
from txlab.nn.backend import SDPA, Math
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.position import ALiBi
from txlab.testing import tiny

S, T = 6, 4
NAMES = {"q": ("q_proj", "q"), "k": ("k_proj", "k"), "v": ("v_proj", "v"), "o": ("out_proj", "o")}


def theirs(family: str) -> Any:
    if family == "bart":
        made: Any = BartAttention(
            32, 4, is_decoder=True, config=BartConfig(attn_implementation="eager"), layer_idx=0
        )
    else:
        sizes = T5Config(d_model=32, d_kv=8, num_heads=4, dropout_rate=0.0)
        sizes._attn_implementation = "eager"
        sizes.is_decoder = True
        made = T5Attention(sizes, has_relative_attention_bias=False, layer_idx=0)
    tiny.shake(made)
    return made.eval()


def ours(peer: Any, family: str) -> CrossAttention:
    bart = family == "bart"
    made = CrossAttention(CrossAttention.Config(qkv_bias=bart, out_bias=bart), tiny.DIMS)
    with torch.no_grad():
        for name, pair in NAMES.items():
            source, target = getattr(peer, pair[not bart]), getattr(made, name)
            # T5 does not divide by the root of the head's width.
            target.weight.copy_(source.weight * (8**0.5 if name == "q" and not bart else 1.0))
            if bart:
                target.bias.copy_(source.bias)
    return made.eval()


def context(memory: Tensor, mask: Mask | None, backend: type = Math) -> Context:
    places = torch.arange(T)[None]
    # A scheme with a bias: none of it may reach the memory.
    scheme = ALiBi(ALiBi.Config(), tiny.DIMS)
    return Context(
        Mask(T, T),
        places,
        scheme,
        scheme.prepare(places),
        backend(backend.Config(), tiny.DIMS),
        memory=memory,
        memory_mask=mask,
    )


@pytest.mark.parametrize("backend", [Math, SDPA])
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_same_values_and_gradients_with_padding_in_the_memory(family: str, backend: type) -> None:
    peer = theirs(family)
    made = ours(peer, family)
    x, memory = tiny.floats(2, T, 32), tiny.floats(2, S, 32, seed=2)
    valid = tiny.padded((S, 3), left=False)
    hidden = torch.zeros(2, 1, T, S).masked_fill(~valid[:, None, None], float("-inf"))
    found = []
    for mine in (True, False):
        leaves = [x.clone().requires_grad_(), memory.clone().requires_grad_()]
        if mine:
            mask = Mask(T, S, causal=False, valid=valid)
            y = made(leaves[0], context(leaves[1], mask, backend))
        elif family == "bart":
            y = peer(leaves[0], key_value_states=leaves[1], attention_mask=hidden)[0]
        else:
            y = peer(leaves[0], mask=hidden, key_value_states=leaves[1])[0]
        (y * tiny.floats(*y.shape, seed=3)).sum().backward()
        found.append([y.detach(), *(leaf.grad for leaf in leaves)])
    assert found[0][0].std() > 0.1
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", [Math, SDPA])
def test_memory_padding_is_invisible_and_an_empty_row_gives_zeros(backend: type) -> None:
    made = ours(theirs("t5"), "t5")
    x, memory = tiny.floats(3, T, 32), tiny.floats(3, S, 32, seed=2)
    valid = tiny.padded((S, 2, 1), left=True)
    valid[2] = False
    memory = torch.where(valid[..., None], memory, 50.0).requires_grad_()
    y = made(x, context(memory, Mask(T, S, causal=False, valid=valid), backend))
    short = made(x[1:2], context(memory[1:2, 4:], None, backend))
    torch.testing.assert_close(y[1:2], short, atol=1e-6, rtol=1e-6)
    assert not y[2].any()
    y.sum().backward()
    assert memory.grad is not None
    assert memory.grad.isfinite().all()
    assert not memory.grad[~valid].any()
    assert not made(x, context(memory[:, :0], None, backend)).any()
