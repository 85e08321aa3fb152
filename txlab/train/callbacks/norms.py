"""Norms of gradients, weights and activations, layer by layer."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn

from txlab.core.errors import RequestError
from txlab.nn.attention import SoftmaxAttention
from txlab.train.clip import norm_of
from txlab.train.history import Row
from txlab.train.state import optimizer_names, random_kept

LAYER = re.compile(r"^(?:.*\.)?layers\.\d+|^[^.]+")
QUERIES = 256
"""Queries whose scores are made at once."""


class Norms(Callback):
    """At every `every`-th step, figures of each layer for the next row of the log.

    `grad_norm/LAYER` and `weight_norm/LAYER`: L2 norms over its trained parameters, of the whole
    step's gradient before clipping. With `activations`: `act_rms/LAYER` and `act_max/LAYER`, root
    mean square and largest size of what leaves it, and `logit_max/LAYER`, the largest attention
    score, before softcap and bias. They come from one more forward pass over this rank's first
    micro-batch, whose random numbers are put back: results do not change.
    """

    adds = ("grad_norm/", "weight_norm/", "act_rms/", "act_max/", "logit_max/")

    def __init__(self, every: int = 50, *, activations: bool = True) -> None:
        if every < 1:
            raise RequestError(f"callbacks.norms.every={every}: expected 1 or more steps.")
        self.every, self.activations = every, activations
        self.found: Row = {}

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self.activations or (pl_module.counters.step + 1) % self.every:
            return
        with (
            random_kept(),
            torch.no_grad(),
            trainer.precision_plugin.forward_context(),
            torch.compiler.set_stance("force_eager"),
            watched(pl_module.model) as seen,
        ):
            pl_module.objective(pl_module.model, batch[0])
        self.found |= {name: float(value) for name, value in seen.items()}

    def on_gradients(self, trainer: Trainer, module: Any) -> None:
        if (module.counters.step + 1) % self.every:
            return
        weights: dict[str, list[Tensor]] = defaultdict(list)
        gradients: dict[str, list[Tensor]] = defaultdict(list)
        parameters = (p for group in module.optimizer.param_groups for p in group["params"])
        for name, parameter in zip(optimizer_names(module.optimizer), parameters, strict=True):
            layer = layer_of(name)
            weights[layer].append(parameter.detach())
            if parameter.grad is not None:
                gradients[layer].append(parameter.grad)
        for what, layers in (("grad_norm", gradients), ("weight_norm", weights)):
            self.found |= {f"{what}/{k}": float(norm_of(found)) for k, found in layers.items()}

    def add_columns(self, trainer: Trainer, module: Any, row: Row) -> None:
        row |= self.found
        self.found = {}

    def state_dict(self) -> dict[str, Any]:
        return {"found": dict(self.found)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.found = dict(state_dict["found"])


def layer_of(name: str) -> str:
    """The layer that a parameter or module belongs to: `layers.3`, `embed`, `norm` ..."""
    found = LAYER.match(name)
    assert found is not None
    return found[0]


@contextlib.contextmanager
def watched(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Figures of the forward passes inside of this, by column."""
    seen: dict[str, Tensor] = {}
    undo: list[Any] = []

    def keep(column: str, value: Tensor) -> None:
        seen[column] = torch.maximum(seen[column], value) if column in seen else value

    for name, part in model.named_modules():
        if re.search(r"(^|\.)layers\.\d+$", name):

            def measure(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
                states = output if isinstance(output, Tensor) else output[0]
                keep(f"act_rms/{name}", states.float().square().mean().sqrt())
                keep(f"act_max/{name}", states.float().abs().amax())

            undo.append(part.register_forward_hook(measure).remove)
        if isinstance(part, SoftmaxAttention):
            inner, layer = part.attend, layer_of(name)

            def attend(
                q: Tensor,
                k: Tensor,
                v: Tensor,
                mask: Any,
                ctx: Any,
                *,
                gain: float = 1.0,
                inner: Any = inner,
                part: SoftmaxAttention = part,
                layer: str = layer,
                **more: Any,
            ) -> Tensor:
                keep(f"logit_max/{layer}", largest(q, k, mask, part.scale * gain))
                return inner(q, k, v, mask, ctx, gain=gain, **more)

            part.attend = attend
            undo.append(lambda part=part: delattr(part, "attend"))
    try:
        yield seen
    finally:
        for one in undo:
            one()


def largest(q: Tensor, k: Tensor, mask: Any, scale: float) -> Tensor:
    """Largest score of q [b h t k] and keys k [b g s k] that may see each other, float32."""
    b, h, t, width = q.shape
    groups, s = k.shape[1], k.shape[2]
    grouped = q.reshape(b, groups, h // groups, t, width)
    keys, best = k.unsqueeze(2).transpose(-1, -2), []
    places = torch.arange(s, device=q.device)
    for begin in range(0, t, QUERIES):
        part = grouped[:, :, :, begin : begin + QUERIES]
        scores = (part @ keys).float().reshape(b, h, -1, s) * scale
        seen = mask.part(torch.arange(begin, begin + scores.shape[2], device=q.device), places)
        best.append(scores.masked_fill(~seen, -torch.inf).amax())
    return torch.stack(best).amax()
