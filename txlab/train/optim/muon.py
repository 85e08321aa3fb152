"""Muon: orthogonalised momentum for the matrices inside layers, AdamW for all else."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from txlab.core.errors import RequestError
from txlab.nn.ffn.grouped import GroupedLinear
from txlab.train.optim.adamw import Adam
from txlab.train.optim.closure import loss_of
from txlab.train.optim.groups import Share, Width, grouped
from txlab.train.optim.optimizer import optim
from txlab.train.optim.orthogonal import orthogonalised


class Adjust(str, Enum):
    """How the rate of an orthogonalised update depends on the shape [o, i] of its matrix."""

    match_rms_adamw = "match_rms_adamw"
    """0.2 sqrt(max(o, i)): numbers of the size of AdamW's, whose rates fit (Liu et al. 2025)."""
    original = "original"
    """sqrt(max(1, o / i)), for rates around 0.02 (Jordan et al. 2024)."""


@optim("muon")
class Muon(Adam):
    """Orthogonalised momentum for matrices inside layers, AdamW for the rest (Jordan et al. 2024).

    Matrices of attention, feed-forward layers and adapters are Muon's, each expert's by itself;
    embeddings, head, positions, routers and vectors are AdamW's. Decay is decoupled in both.
    """

    @dataclass
    class Config(Adam.Config):
        adjust: Adjust = Adjust.match_rms_adamw
        """match_rms_adamw: rates as AdamW's; original: for rates near 0.02."""
        momentum: float = 0.95
        """Decay of the running mean that is orthogonalised."""
        nesterov: bool = True
        """Look ahead along the momentum."""
        ns_steps: int = 5
        """Newton-Schulz iterations."""
        adamw_lr: float | None = None
        """Peak rate of what AdamW trains; None: lr."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.momentum < 1, "momentum", "a number in [0, 1)")
            self.require(1 <= self.ns_steps < 100, "ns_steps", "a number from 1 to 99")
            rate = self.adamw_lr
            self.require(rate is None or rate > 0, "adamw_lr", "a learning rate above 0")

    config: Config

    @property
    def width(self) -> Width | None:
        # An orthogonal update has spectral norm 1, which fits every width (Yang et al. 2023); the
        # factor that matches AdamW grows with the root of the width.
        return Width(hidden=0 if self.config.adjust is Adjust.original else -0.5, rest=0)

    def make(self, model: nn.Module) -> Optimizer:
        config = self.config
        found = self.shares(model)
        stacks = {
            f"{name}.weight" for name, m in model.named_modules() if isinstance(m, GroupedLinear)
        }
        hidden = [share for share in found if _hidden(share, stacks)]
        if not hidden:
            raise RequestError(
                "optim=muon: no matrix of attention, feed-forward layer or adapter trains here; "
                "choose another optimizer."
            )
        names = {share.name for share in hidden}
        rest = [share for share in found if share.name not in names]
        groups = grouped(hidden, lr=config.lr, weight_decay=config.weight_decay)
        for group in groups:
            group["muon"] = True
        groups += grouped(
            rest,
            lr=config.lr if config.adamw_lr is None else config.adamw_lr,
            weight_decay=config.weight_decay,
        )
        return MuonAdamW(groups, config)


def _hidden(share: Share, stacks: set[str]) -> bool:
    inside = share.role in ("attn", "ffn", "adapter") and share.decay > 0
    return inside and (share.parameter.ndim == 2 or share.name in stacks)


class MuonAdamW(Optimizer):
    """Groups with `muon` true follow Muon's rule, all others AdamW's."""

    def __init__(self, params: Any, config: Muon.Config) -> None:
        # torch looks for `fused` where it loads a state: counts then go to their device.
        defaults = {"lr": config.lr, "weight_decay": 0.0, "muon": False, "fused": True}
        super().__init__(params, defaults)
        self.config = config

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = loss_of(closure)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and p.numel()]
            if not group["muon"]:
                self._adamw(params, group)
                continue
            for parameter in params:
                self._muon(parameter, parameter.grad, group)
        return loss

    def _muon(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        config, state = self.config, self.state[parameter]
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        momentum.lerp_(grad, 1 - config.momentum)
        move = grad.lerp(momentum, config.momentum) if config.nesterov else momentum
        move = orthogonalised(move, config.ns_steps).to(parameter.dtype)
        lr = float(group["lr"])
        parameter.mul_(1 - lr * group["weight_decay"])
        parameter.sub_(move, alpha=lr * _factor(parameter, config.adjust))

    def _adamw(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        if not params:
            return
        for p in params:
            if not self.state[p]:
                count = torch.zeros((), dtype=torch.float32, device=p.device)
                moments = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                self.state[p] |= {"step": count, **moments}
        states = [self.state[p] for p in params]
        adamw(
            list(params),
            [p.grad for p in params if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=False,
            fused=True,
            amsgrad=False,
            beta1=self.config.betas[0],
            beta2=self.config.betas[1],
            lr=float(group["lr"]),
            weight_decay=group["weight_decay"],
            eps=self.config.eps,
            maximize=False,
        )


def _factor(matrix: Tensor, adjust: Adjust) -> float:
    n_out, n_in = matrix.shape[-2:]
    if adjust is Adjust.original:
        return math.sqrt(max(1, n_out / n_in))
    return 0.2 * math.sqrt(max(n_out, n_in))
