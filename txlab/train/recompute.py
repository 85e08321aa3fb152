"""Activation checkpointing: what a block computed is made again in the backward pass, not kept.

Chen et al. 2016, "Training deep nets with sublinear memory cost"; the selective kind after
Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models".
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo import eval_frame
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

from txlab.core.errors import RequestError
from txlab.train.compiling import compile_blocks

DEAR = (
    "aten.mm",
    "aten.addmm",
    "aten._grouped_mm",
    "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention",
    "_c10d_functional.all_reduce",
    "txlab.grouped_linear",
    "higher_order.flex_attention",
)
"""Operators whose outputs the selective kind keeps: those that cost most for the memory they take.
Products of scores are not among them: they grow with the square of the length."""


def prepare_blocks(model: nn.Module, *, how: str, compiled: bool) -> None:
    """Both of what may be done to the forward passes of a model's blocks, in the right order.

    The compiler must see what the selective kind keeps; all else is recomputed by what it made.
    """
    if how == "selective":
        recompute_blocks(model, how)
    if compiled:
        compile_blocks(model)
        if how not in ("none", "selective"):
            refuse_parameter_adapters(model, how)
            # Of the graphs that fit a block torch takes the one used last, which in the backward
            # pass need not be the one of the forward pass: have it take the oldest.
            eval_frame._set_lru_cache(False)  # pyright: ignore[reportAttributeAccessIssue]
    if how != "selective":
        recompute_blocks(model, how)


def refuse_parameter_adapters(model: nn.Module, how: str) -> None:
    """RequestError where an adapter swaps a layer's tensors as it runs, as peft's on experts does:
    no two runs of such a layer are of the same graphs."""
    for name, part in model.named_modules():
        if type(part).__name__ == "ParamWrapper":
            raise RequestError(
                f"train.activation_checkpointing={how} with train.compile=true: {name} has an "
                "adapter on stacked experts, which is compiled anew: use selective, or "
                "train.compile=false."
            )


def recompute_blocks(model: nn.Module, how: str) -> None:
    """Have blocks of `model.layers` computed again in the backward pass, as `how` says.

    Same loss and gradients to the bit, dropout included; inductor fuses what the selective kind
    keeps in another way, so that the last bits of gradients differ there.
    """
    if how == "none":
        return
    every = int(how) if how.isdecimal() else 1
    layers = getattr(model, "layers", None)
    if layers is None:
        raise RequestError(
            f"train.activation_checkpointing={how}: {type(model).__name__} has no `layers`."
        )
    contexts = _selective if how == "selective" else noop_context_fn
    for block in list(layers)[::every]:
        block.forward = _again(block.forward, contexts)


def _again(forward: Callable[..., Any], contexts: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(*args: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():  # validation and decoding keep nothing anyway
            return forward(*args, **named)
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **named)

    return call


def _selective() -> Any:
    return create_selective_checkpoint_contexts(_policy)


def _policy(context: Any, operator: Any, *args: Any, **named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if _is_dear(operator) else CheckpointPolicy.PREFER_RECOMPUTE


def _is_dear(operator: Any) -> bool:
    return str(operator).removesuffix(".default") in DEAR


class Dear(TorchDispatchMode):
    """Counts the bytes that the selective kind keeps of a forward pass inside of it: torch holds
    them where no hook on saved tensors sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if _is_dear(func):
            self.bytes += sum(t.nbytes for t in tree_leaves(made) if isinstance(t, Tensor))
        return made
