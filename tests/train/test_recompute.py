"""Activation checkpointing changes memory and nothing else."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.train.tiny_run import decoder, rows_of
from txlab.core.errors import RequestError
from txlab.nn.adapter import LoRA
from txlab.nn.ffn import MoE
from txlab.objectives.next_token import NextToken
from txlab.train.compiling import BACKEND
from txlab.train.config import Train
from txlab.train.memory import Saved
from txlab.train.recompute import prepare_blocks
from txlab.train.state import seeded

HOW = ("full", "2", "selective")
MIXTURE = {"n_experts": 4, "top_k": 2, "hidden": 8, "balance_loss": 0.1, "z_loss": 0.1}


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "aten.mm" in str(func)
        return func(*args, **(kwargs or {}))


def made(kind: str, how: str, *, compiled: bool = False, low: bool = False) -> dict[str, Any]:
    """Loss, gradients, bytes kept and products of the backward pass, with dropout everywhere."""
    with seeded(5):
        ffn = {"ffn": MoE.Config(**MIXTURE, jitter=0.1)} if kind == "moe" else {}
        model = decoder(dropout=0.1, **ffn)
        if kind == "lora":
            LoRA(LoRA.Config(r=2, dropout=0.1)).inject(model)
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter)
        prepare_blocks(model, how=how, compiled=compiled)
        with Saved(model) as saved, torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = NextToken(NextToken.Config())(model, rows_of(0)).sum
        products = Products()
        # Inside of a mode torch runs no compiled code, so that what it recomputes is not the same.
        with nullcontext() if compiled else products:
            loss.backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    return {
        "loss": loss.detach(),
        "grads": grads,
        "bytes": saved.bytes,
        "products": products.count,
    }


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert torch.equal(a["loss"], b["loss"])
    for name, grad in b["grads"].items():
        assert isinstance(grad, Tensor), name
        assert torch.equal(a["grads"][name], grad), name


@pytest.mark.parametrize("low", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("kind", ["plain", "moe", "lora"])
def test_loss_and_gradients_are_the_same_to_the_bit(kind: str, low: bool):
    """LORA-04 among them: adapters on frozen embeddings have their gradients, none of them 0."""
    plain = made(kind, "none", low=low)
    assert all(grad is not None and grad.any() for grad in plain["grads"].values())
    for how in HOW:
        same(made(kind, how, low=low), plain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks it while tracing
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", ["plain", "moe", "lora"])
def test_compiled_too(kind: str, how: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(BACKEND, "aot_eager")
    same(made(kind, how, compiled=True), made(kind, "none", compiled=True))


def test_what_is_kept_and_what_is_computed_again():
    """Two blocks: in full both are made again, of every second the first; selective no product."""
    plain, full, second, selective = (made("plain", how) for how in ("none", *HOW))
    assert full["bytes"] < second["bytes"] < plain["bytes"]
    assert full["bytes"] < plain["bytes"] / 5
    assert plain["products"] == selective["products"]
    blocks = full["products"] - plain["products"]
    assert second["products"] - plain["products"] == blocks / 2 > 0


def test_nothing_is_made_again_where_nothing_is_kept():
    model = decoder()
    prepare_blocks(model, how="full", compiled=False)
    with torch.no_grad():
        assert not model(rows_of(0)["tokens"]).states.requires_grad


@pytest.mark.parametrize("how", ["all", "0", "-1", "1.5", ""])
def test_other_words_are_refused(how: str):
    with pytest.raises(RequestError, match=f"train.activation_checkpointing={how}: expected none"):
        Train(activation_checkpointing=how)


def test_a_model_without_layers_has_none_to_compute_again():
    with pytest.raises(RequestError, match="Linear has no `layers`"):
        prepare_blocks(torch.nn.Linear(1, 1), how="full", compiled=False)
