"""Biases of scores that layers share, where layers are computed again or compiled."""

import copy
from typing import Any

import pytest
import torch

from tests.train.tiny_run import decoder, rows_of
from txlab.core.errors import RequestError
from txlab.nn.adapter import LoRA
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.ffn import MoE
from txlab.nn.position import position
from txlab.objectives.next_token import NextToken
from txlab.train.compiling import BACKEND
from txlab.train.recompute import prepare_blocks
from txlab.train.state import seeded

ATTENTIONS = [n for n, option in attention.options.items() if option.cls.attends and n != "flash"]


def config(slot: Any, name: str, **fields: Any) -> Any:
    return slot.options[name].config(**fields)


def model_of(attn: str, pos: str, kernel: str) -> Any:
    fields: Any = {"longformer": {"window": 3, "n_globals": 2}, "bigbird": {"block": 2}}.get(
        attn, {}
    )
    return decoder(
        attn=config(attention, attn, **fields),
        pos=config(position, pos),
        backend=config(backend, kernel),
    )


def gradients(model: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """Of two micro-batches, the second shorter than the first: its masks are others."""
    rows: Any = rows_of(0)
    loss = torch.zeros(())
    for length in (8, 5):
        batch: Any = {key: value[:, :length] for key, value in rows.items()}
        one = NextToken(NextToken.Config())(model, batch).sum
        one.backward()
        loss += one.detach()
    return loss, {name: p.grad for name, p in model.named_parameters()}


def same(plain: Any, changed: Any, tolerance: float) -> None:
    (loss, grads), (other_loss, others) = gradients(plain), gradients(changed)
    torch.testing.assert_close(other_loss, loss, rtol=0, atol=tolerance)
    for name, grad in grads.items():
        assert grad is not None, name
        torch.testing.assert_close(others[name], grad, rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize("how", ["full", "2", "selective"])
@pytest.mark.parametrize("kernel", ["auto", "math"])
@pytest.mark.parametrize("attn", ATTENTIONS)
def test_a_bias_that_learns_is_not_what_one_layer_makes_again(attn: str, kernel: str, how: str):
    with seeded(5):
        plain = model_of(attn, "t5", kernel)
    changed = copy.deepcopy(plain)
    prepare_blocks(changed, how=how, compiled=False)
    same(plain, changed, 0.0)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
@pytest.mark.parametrize("pos", ["t5", "alibi"])
@pytest.mark.parametrize("how", ["none", "full"])
def test_compiled_layers_are_one_graph(how: str, pos: str, monkeypatch: pytest.MonkeyPatch):
    """Of each length: the first layer's is not another one, as it would be if it made the bias."""
    monkeypatch.setenv(BACKEND, "aot_eager")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with seeded(5):
        plain = model_of("mha", pos, "auto")
    changed = copy.deepcopy(plain)
    prepare_blocks(changed, how=how, compiled=True)
    same(plain, changed, 1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_layer_is_made_again_by_the_graph_that_made_it(monkeypatch: pytest.MonkeyPatch):
    """The second layer's own lambda makes a graph that fits the first, too."""
    monkeypatch.setenv(BACKEND, "aot_eager")
    torch._dynamo.reset()
    with seeded(5):
        plain = model_of("differential", "rope", "auto")
    changed = copy.deepcopy(plain)
    prepare_blocks(changed, how="full", compiled=True)
    same(plain, changed, 1e-6)


@pytest.mark.parametrize("how", ["full", "2"])
def test_adapted_experts_are_not_compiled_and_made_again(how: str):
    model = decoder(ffn=MoE.Config(n_experts=2, top_k=1, hidden=8))
    LoRA(LoRA.Config(r=2)).inject(model)
    with pytest.raises(RequestError, match=f"activation_checkpointing={how} with train.compile"):
        prepare_blocks(model, how=how, compiled=True)
    prepare_blocks(model, how=how, compiled=False)
