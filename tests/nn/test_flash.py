"""The fused kernel or nothing: `flash` as an attention option and as a backend; `flex` on a CPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.attention import GQA, FlashAttention
from txlab.nn.backend import Auto, Flash, Flex, Math, backend
from txlab.nn.mask import Mask
from txlab.nn.position import ALiBi, position
from txlab.testing.tiny import DIMS, floats, model, tokens


def heads(n: int = 4, t: int = 5, width: int = 8, **how) -> Tensor:
    return floats(2, n, t, width, **how)


@pytest.mark.parametrize("kind", [Auto, Flash])
def test_flash_is_gqa_by_the_fused_kernel(kind: type) -> None:
    """ATTN-01 too: grouped heads, by weights copied over, with packed documents and padding."""
    fields = {"n_kv_heads": 2, "sink_logit": True, "window": 4, "sinks": 1}
    pinned = model(attn=FlashAttention.Config(**fields), backend=kind.Config())
    plain = model(attn=GQA.Config(**fields), backend=Math.Config())
    assert pinned.layers.backends() == ["flash", "flash"]
    ids = tokens(2, 9)
    documents = (torch.arange(9) > 4).long().expand(2, -1)
    valid = torch.arange(9) < torch.tensor([[9], [6]])
    for inputs in ({}, {"documents": documents}, {"valid": valid}):
        found = [each(ids, **inputs).states for each in (pinned, plain)]
        torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    assert "Flash" in str(graph(pinned(ids).states))
    assert "Flash" not in str(graph(plain(ids).states))


def graph(y: Tensor) -> set[str]:
    """Names of all steps that made y."""
    found, queue = set(), [y.grad_fn]
    while queue:
        step = queue.pop()
        if step is not None and step not in found:
            found.add(step)
            queue += [following for following, _ in step.next_functions]
    return {type(step).__name__ for step in found}


@pytest.mark.parametrize(
    ("fields", "choices", "says"),
    [
        ({}, {"backend": "math"}, "model.backend=math is none: use model.backend=auto or flash"),
        ({}, {"backend": "sdpa"}, r"model.attn=flash: .*model.backend=sdpa is none"),
        ({}, {"pos": ALiBi.Config()}, "model.attn=flash: model.pos=alibi adds a bias"),
        ({"dropout": 0.1}, {}, "dropout=0.1, and the fused kernel has none: set model.attn.drop"),
    ],
)
def test_what_the_fused_kernel_cannot_do_is_refused_at_build(
    fields: dict, choices: dict, says: str
) -> None:
    if "backend" in choices:
        choices = {"backend": backend.config(choices["backend"])}
    with pytest.raises(RequestError, match=says):
        model(attn=FlashAttention.Config(**fields), **choices)
    with pytest.raises(RequestError, match=r"softcap=5\.0 of option 'flash'"):
        FlashAttention.Config(softcap=5.0)


@pytest.mark.parametrize("name", ["flash", "flex"])
def test_dropout_is_refused_where_a_kernel_has_none(name: str) -> None:
    with pytest.raises(RequestError, match=f"model.backend={name} cannot compute dropout"):
        model(attn=GQA.Config(dropout=0.1), backend=backend.config(name))
    built = backend.build(backend.config(name), DIMS)
    with torch.no_grad(), pytest.raises(RequestError, match="no dropout"):
        built.attend(heads(), heads(2), heads(2), Mask(5, 5), scale=1.0, dropout=0.5)


def test_flash_takes_values_wider_and_narrower_than_keys() -> None:
    for width in (3, 8, 12):
        q, k, v = heads(), heads(2, seed=1), heads(2, width=width, seed=2)
        found = [
            kind(kind.Config(), DIMS).attend(q, k, v, Mask(5, 5), scale=1.0)
            for kind in (Flash, Math)
        ]
        torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_flash_says_when_there_is_no_kernel(monkeypatch) -> None:
    def none(*args, **how):
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", none)
    q = heads()
    with pytest.raises(RequestError, match=r"no fused kernel takes torch.float32 .* 8 channels"):
        Flash(Flash.Config(), DIMS).attend(q, q, q, Mask(5, 5), scale=1.0)


def test_flex_on_a_cpu_is_for_inference_and_refuses_a_backward_in_one_line() -> None:
    decoder = model(backend=Flex.Config())
    plain = model(backend=Math.Config())
    ids = tokens(2, 9)
    with pytest.raises(RequestError, match=r"^model\.backend=flex has no backward on a CPU: .*\.$"):
        decoder(ids)
    valid = torch.arange(9) >= torch.tensor([[0], [4]])
    with torch.no_grad():
        for inputs in ({}, {"valid": valid}):
            found = [each(ids, **inputs).states for each in (decoder, plain)]
            torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_flex_compiled_on_a_cpu_has_no_sink_logit() -> None:
    decoder = model(backend=Flex.Config(compiled=True), attn=GQA.Config(sink_logit=True))
    with torch.no_grad(), pytest.raises(RequestError, match="has no sink_logit: leave"):
        decoder(tokens(1, 5))


def test_flex_makes_one_block_mask_a_step() -> None:
    built, mask = Flex(Flex.Config(), DIMS), Mask(200, 200, window=70)
    assert built._blocks(mask, torch.device("cpu")) is built._blocks(mask, torch.device("cpu"))
    assert built._blocks(Mask(9, 9, causal=False), torch.device("cpu")) is None


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pos", "fields", "inputs", "dtype"),
    [
        ("rope", {}, (), torch.bfloat16),
        ("alibi", {"window": 40, "softcap": 5.0}, ("documents", "valid"), torch.float32),
    ],
)
def test_flex_compiled_on_a_cpu_takes_lengths_in_turn(
    pos: str, fields: Any, inputs: Any, dtype: torch.dtype
) -> None:
    """ATTN-03 through whole models, 100 s: nothing compiled for one length serves another."""
    dims = replace(DIMS, context=1025)
    built, plain = (
        model(dims, backend=kind, pos=position.config(pos), attn=GQA.Config(**fields)).to(dtype)
        for kind in (Flex.Config(compiled=True), Math.Config())
    )
    torch.compiler.reset()
    for n in (1, 127, 128, 129, 1025):
        ids, documents = tokens(2, n), (torch.arange(n) >= n // 3).long().expand(2, -1)
        valid = torch.arange(n) < torch.tensor([[n], [n - n // 4]])
        given = {"documents": documents, "valid": valid}
        given = {name: given[name] for name in inputs}
        found, wanted = (each(ids, **given).states[valid].float() for each in (built, plain))
        apart = float((found - wanted).norm() / wanted.norm())
        assert apart < (1e-4 if dtype == torch.float32 else 2e-2), n
