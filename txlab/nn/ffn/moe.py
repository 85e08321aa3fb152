"""Mixture of experts: each token runs through a few of many feed-forward layers."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from txlab.core.config import Dims
from txlab.nn.auxiliary import Aux
from txlab.nn.context import Context
from txlab.nn.ffn.dispatch import dispatch
from txlab.nn.ffn.experts import expert_config, expert_width, experts
from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.ffn.router import Router, Routing, Scoring, balance, z_loss
from txlab.nn.mask import Mask


@ffn("moe")
class MoE(FFN):
    """The weighted sum of the top_k of n_experts feed-forward layers (Shazeer et al. 2017).

    Tokens are sorted by expert, and each expert computes its own rows only. Without a capacity no
    token is dropped, so a token's output depends on nothing else in the batch. Balance and z-loss
    are means over the real tokens of one micro-batch, then over micro-batches by their items: two
    micro-batches that each collapse on another expert count as collapsed, not as balanced.
    """

    @dataclass
    class Config(FFN.Config):
        """Fields of the mixture; `hidden` and `bias` are those of one expert."""

        n_experts: int = 8
        """Experts that tokens choose from."""
        top_k: int = 2
        """Experts of each token."""
        expert: str = "swiglu"
        """Name of the feed-forward option that the experts are."""
        n_shared: int = 0
        """Experts that every token runs through as well, as one of n_shared times the width."""
        scoring: Scoring = Scoring.softmax
        """How logits become weights: softmax before or after the choice, or sigmoid."""
        norm_top_k: bool | None = None
        """Divide a token's weights by their sum; None: where top_k is above 1."""
        scale: float = 1.0
        """Factor on the weights of the chosen experts."""
        n_groups: int = 1
        """Groups of experts, of which a token chooses `top_groups` first (DeepSeek-V2)."""
        top_groups: int = 1
        """Groups that a token chooses its experts from."""
        balance_loss: float = 0.01
        """Weight of n_experts sum(f_i P_i): 1 where the load is even (Fedus et al. 2021)."""
        z_loss: float = 0.0
        """Weight of logsumexp(logits)^2 against large logits (Zoph et al. 2022)."""
        bias_rate: float | None = None
        """How far a bias on each expert's score moves against its load at each update, without any
        loss (Wang et al. 2024); 0: it stays; None: there is none."""
        capacity_factor: float | None = None
        """In training, an expert takes this times its even share of tokens and drops the rest, late
        and second choices first; None: none is dropped."""
        jitter: float = 0.0
        """In training, the router's input is multiplied by 1 +- this (Fedus et al. 2021)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.n_experts > 1, "n_experts", "2 or more")
            self.require(
                0 < self.top_k <= self.n_experts, "top_k", f"1 to n_experts={self.n_experts}"
            )
            self.require(self.n_shared >= 0, "n_shared", "0 or more")
            alone = "with top_k=1: its weight would always be 1, and the router could not learn"
            self.require(self.top_k > 1 or not self.norm_top_k, "norm_top_k", f"false {alone}")
            self.require(
                self.top_k > 1 or self.scoring is not Scoring.softmax_after,
                "scoring",
                f"softmax or sigmoid {alone}",
            )
            self.require(
                self.scoring is not Scoring.softmax_after or self.norm_top_k is not False,
                "norm_top_k",
                "true with scoring=softmax_after, whose weights add up to 1",
            )
            self.require(self.scale > 0, "scale", "a number above 0")
            self.require(
                self.n_groups > 0 and self.n_experts % self.n_groups == 0,
                "n_groups",
                f"a divisor of n_experts={self.n_experts}",
            )
            self.require(
                0 < self.top_groups <= self.n_groups, "top_groups", f"1 to n_groups={self.n_groups}"
            )
            room = self.n_experts // self.n_groups * self.top_groups
            self.require(
                self.top_k <= room, "top_k", f"at most the {room} experts of top_groups groups"
            )
            for name in ("balance_loss", "z_loss"):
                self.require(getattr(self, name) >= 0, name, "0 or more")
            self.require(self.bias_rate is None or self.bias_rate >= 0, "bias_rate", "0 or more")
            self.require(
                self.capacity_factor is None or self.capacity_factor > 0,
                "capacity_factor",
                "a number above 0",
            )
            self.require(0 <= self.jitter < 1, "jitter", "0 <= jitter < 1")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.config = config
        one = expert_config(config, config.expert, hidden=config.hidden)
        self.router = Router(
            dims.dim,
            config.n_experts,
            top_k=config.top_k,
            scoring=config.scoring,
            norm_top_k=config.top_k > 1 if config.norm_top_k is None else config.norm_top_k,
            scale=config.scale,
            groups=(config.n_groups, config.top_groups),
            jitter=config.jitter,
            biased=config.bias_rate is not None,
        )
        self.active = {"experts": config.top_k / config.n_experts}
        self.experts = experts(one, dims, config.n_experts)
        self.shared: FFN | None = None
        if config.n_shared:
            width = config.n_shared * expert_width(one, dims)
            self.shared = ffn.build(replace(one, hidden=width), dims)

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context
    ) -> Float[Tensor, "b t d"] | tuple[Float[Tensor, "b t d"], Aux]:
        real = real_tokens(ctx.mask)
        flat = x.flatten(0, 1)
        routing = self.router(flat)
        way = dispatch(routing.experts, self.config.n_experts, real, self.capacity(flat, real))
        rows = self.experts(flat, way, ctx)
        partial = real is not None or (self.training and self.config.capacity_factor is not None)
        kept = way.kept() if partial else None
        weights = routing.weights if kept is None else routing.weights * kept
        y = way.collect(rows, weights).view_as(x)
        if self.shared is not None:
            y = y + self.shared(x, ctx)
        if not torch.is_grad_enabled():  # nothing to train: decoding and validation need no losses
            return y
        return y, self.aux(routing, real, kept)

    def capacity(
        self, flat: Float[Tensor, "n d"], real: Bool[Tensor, "n"] | None
    ) -> Tensor | int | None:
        """Choices that each expert takes; None where nothing is dropped."""
        factor = self.config.capacity_factor
        if factor is None or not self.training:
            return None
        share = factor * self.config.top_k / self.config.n_experts
        if real is None:
            return math.ceil(share * len(flat))
        return (share * real.sum()).ceil().long()

    def aux(
        self, routing: Routing, real: Bool[Tensor, "n"] | None, kept: Bool[Tensor, "n k"] | None
    ) -> Aux:
        """Losses with their weights, the largest load (1: even) and what was dropped."""
        config = self.config
        even, load = balance(routing, config.n_experts, real)
        losses = {"balance": config.balance_loss * even} if config.balance_loss else {}
        if config.z_loss:
            losses["router_z"] = config.z_loss * z_loss(routing, real)
        with torch.no_grad():
            total = load.sum().clamp(min=1)
            one = torch.ones_like(total)
            figures = {"max_load": (load.max() * config.n_experts / total, one)}
            if config.capacity_factor is not None and kept is not None:
                figures["dropped"] = (1 - kept.sum() / total, one)
        return Aux(losses, figures, (load,) if self.balances else ())

    @property
    def balances(self) -> bool:
        # A frozen router (under an adapter) keeps its bias: nothing but the adapter is saved.
        return bool(self.config.bias_rate) and self.router.weight.requires_grad

    @torch.no_grad()
    def rebalance(self, load: Float[Tensor, "e"]) -> None:
        bias, rate = self.router.bias, self.config.bias_rate
        assert bias is not None
        assert rate is not None
        bias += rate * (load.mean() - load).sign().to(bias)


def real_tokens(mask: Mask) -> Bool[Tensor, "n"] | None:
    """False at padding, for all rows one after the other; None where there is none to be seen."""
    if mask.valid is None or isinstance(mask.q_index, Tensor) or mask.n_queries != mask.n_keys:
        return None
    return mask.valid.flatten()
