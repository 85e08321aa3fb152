"""Tells of parameters that no gradient ever reaches: most often a part that is not wired up."""

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch.distributed.tensor import DTensor

WAIT = 100
"""Steps after which they are told; the end of a shorter run tells of them as well, but not after
one step: half of a fresh adapter has no gradient then, for the other half is 0."""


class Untouched(Callback):
    """Watches each trained parameter until a gradient other than 0 has reached it on any rank.

    Once all have been reached, which is after a step or two, it costs nothing.
    """

    def __init__(self) -> None:
        self.left: dict[str, torch.nn.Parameter] | None = None
        self.names: list[str] = []
        self.steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        named = pl_module.model.named_parameters()
        self.left = {name: p for name, p in named if p.requires_grad}
        self.names, self.steps = list(self.left), 0

    def on_gradients(self, trainer: Trainer, module: Any) -> None:
        if self.left:
            reached = [name for name, p in self.left.items() if _reached(p)]
            for name in reached:
                del self.left[name]

    def on_step(self, trainer: Trainer, module: Any) -> None:
        self.steps += 1
        ends = module.counters.step == module.total_steps and 1 < self.steps < WAIT
        if self.steps != WAIT and not ends:
            return
        left = self._left_everywhere(trainer, module.device)
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            module.tell(
                "on_note",
                f"no gradient has reached {', '.join(left[:3])}{more} in {self.steps} steps: does "
                "the loss depend on it?",
            )

    def _left_everywhere(self, trainer: Trainer, device: torch.device) -> list[str]:
        """Those that are left on every rank, which all ask: a rank may hold nothing of a tensor."""
        left = self.left or {}
        missed = torch.tensor([float(name in left) for name in self.names], device=device)
        if trainer.world_size > 1:
            missed = trainer.strategy.reduce(missed, reduce_op="sum")
        return [n for n, m in zip(self.names, missed, strict=True) if m == trainer.world_size]


def _reached(parameter: torch.nn.Parameter) -> bool:
    grad: Any = parameter.grad
    if grad is None:
        return False
    return bool((grad.to_local() if isinstance(grad, DTensor) else grad).any())
