"""Which experts each token goes to, with what weight: always computed in float32."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class Scoring(StrEnum):
    """How a token's logits become weights."""

    softmax = "softmax"
    """Softmax over all experts, then the best k of them (Shazeer et al. 2017, Switch, Mixtral)."""
    softmax_after = "softmax_after"
    """The best k logits, then softmax over these alone; as `softmax` with `norm_top_k`."""
    sigmoid = "sigmoid"
    """Sigmoid of each logit (DeepSeek-V3, 2024)."""


class Routing(NamedTuple):
    """Where n tokens go."""

    experts: Int[Tensor, "n k"]
    weights: Float[Tensor, "n k"]
    shares: Float[Tensor, "n e"]
    """Scores of all experts, divided by their sum: what the balance loss moves."""
    logits: Float[Tensor, "n e"]


class Router(nn.Module):
    """One linear layer to logits, scores of them, the best k."""

    def __init__(
        self,
        dim: int,
        n_experts: int,
        *,
        top_k: int,
        scoring: Scoring,
        norm_top_k: bool,
        scale: float,
        groups: tuple[int, int],
        jitter: float,
        biased: bool,
    ) -> None:
        super().__init__()
        self.top_k, self.scoring, self.norm_top_k = top_k, scoring, norm_top_k
        self.scale, self.groups, self.jitter = scale, groups, jitter
        self.weight = nn.Parameter(torch.empty(n_experts, dim))
        bias = torch.zeros(n_experts, dtype=torch.float32) if biased else None
        self.register_buffer("bias", bias)
        self.bias: Float[Tensor, "e"] | None
        """Added to scores where experts are chosen, not where they are weighed."""
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(dim), as torch's linear; a bias of 0."""
        reach = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -reach, reach)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Float[Tensor, "n d"]) -> Routing:
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(x.dtype, torch.float32)
            x = x.to(wide)
            if self.training and self.jitter:
                x = x * torch.empty_like(x).uniform_(1 - self.jitter, 1 + self.jitter)
            logits = F.linear(x, self.weight.to(wide))
            if self.scoring is Scoring.sigmoid:
                scores = logits.sigmoid()
                shares = scores / scores.sum(-1, keepdim=True)
            else:
                scores = shares = logits.softmax(-1)
            after = self.scoring is Scoring.softmax_after
            experts = self._choose((logits if after else scores).detach())
            weights = (logits if after else scores).gather(-1, experts)
            if after:
                weights = weights.softmax(-1)
            elif self.norm_top_k:
                weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
            return Routing(experts, weights * self.scale, shares, logits)

    def _choose(self, scores: Float[Tensor, "n e"]) -> Int[Tensor, "n k"]:
        if self.bias is not None:
            scores = scores + self.bias
        n_groups, best = self.groups
        if best < n_groups:
            grouped = scores.unflatten(-1, (n_groups, -1))
            # DeepSeek-V3 rates a group by its two best experts, V2 by its best.
            n = min(2 if self.scoring is Scoring.sigmoid else 1, grouped.shape[-1])
            kept = grouped.topk(n).values.sum(-1).topk(best).indices
            outside = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, kept, False)
            scores = grouped.masked_fill(outside[..., None], float("-inf")).flatten(-2)
        return scores.topk(self.top_k).indices

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Router":
        # bfloat16 would swallow the steps of the bias: it moves to another device, but stays wide.
        before = self.bias
        super()._apply(fn, recurse)
        if before is not None and self.bias is not None and self.bias.dtype != before.dtype:
            wide = torch.promote_types(self.bias.dtype, torch.float32)
            fresh = before.is_meta or self.bias.is_meta
            self.bias = self.bias.to(wide) if fresh else before.to(self.bias.device, wide)
        return self


def balance(
    routing: Routing, n_experts: int, real: Bool[Tensor, "n"] | None
) -> tuple[Float[Tensor, ""], Float[Tensor, "e"]]:
    """The balance loss e sum_i f_i P_i (Fedus et al. 2021, equation 4) and the load of each expert.

    f_i is the share of the k n choices that fell on expert i, P_i the mean of its shares: 1 where
    both are even, e where all of both falls on one. Tokens that are not `real` do not count.
    """
    shares, chosen = routing.shares, torch.ones_like(routing.weights)
    if real is not None:
        shares, chosen = shares * real[:, None], chosen * real[:, None]
    load = torch.zeros_like(shares[0]).scatter_add(
        0, routing.experts.flatten(), chosen.detach().flatten()
    )
    n = _count(routing, real)
    share = load / (n * routing.experts.shape[-1])
    return n_experts * (share * shares.sum(0) / n).sum(), load


def z_loss(routing: Routing, real: Bool[Tensor, "n"] | None) -> Float[Tensor, ""]:
    """The mean square of log(sum(exp(logits))) (Zoph et al. 2022, ST-MoE, equation 5)."""
    squares = routing.logits.logsumexp(-1).square()
    total = squares.sum() if real is None else (squares * real).sum()
    return total / _count(routing, real)


def _count(routing: Routing, real: Bool[Tensor, "n"] | None) -> Tensor | int:
    return max(len(routing.logits), 1) if real is None else real.sum().clamp(min=1)
