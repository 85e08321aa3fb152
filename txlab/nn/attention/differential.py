"""Differential attention: what two softmax maps have in common cancels out."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.attention.mixer import attention
from txlab.nn.attention.softmax import SoftmaxAttention
from txlab.nn.cache import KVCache, LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask, Score
from txlab.nn.norm.rmsnorm import RMSNorm


@dataclass(frozen=True)
class MapScore:
    """A scheme's bias for `heads` first maps, then as many second ones: neighbours in the scheme,
    which has `per_head` biases for a differential head."""

    score: Score
    heads: int
    per_head: int

    def __call__(self, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        second = (h >= self.heads).long()
        return self.score(
            (h - second * self.heads) * self.per_head + second * (self.per_head - 1), q, k
        )


@attention("differential")
class DifferentialAttention(SoftmaxAttention):
    """Differential attention (Ye et al. 2024): (softmax(q1 k1^T) - lambda softmax(q2 k2^T)) v.

    Heads 2i and 2i + 1 are the two maps of one differential head, whose values are as wide as both:
    parameters and cache are those of multi-head attention. An odd n_heads splits each head in two
    instead. lambda = exp(a1 . b1) - exp(a2 . b2) + lambda_init is learned, one a layer; each head's
    output is normed and scaled by 1 - lambda_init.
    """

    @dataclass
    class Config(SoftmaxAttention.Config):
        """Fields of differential attention."""

        n_kv_heads: int | None = None
        """Key/value heads, counted like n_heads (two a differential head); None: n_heads."""
        lambda_init: float | None = None
        """Where lambda starts; None: 0.8 - 0.6 exp(-0.3 layer), more in deeper layers."""
        head_eps: float = 1e-5
        """Added to the mean square in the norm of each head's output."""

        def __post_init__(self) -> None:
            super().__post_init__()
            kv, start = self.n_kv_heads, self.lambda_init
            self.require(kv is None or kv > 0, "n_kv_heads", "a number above 0")
            self.require(start is None or 0 <= start < 1, "lambda_init", "0 <= lambda_init < 1")
            self.require(self.head_eps > 0, "head_eps", "a number above 0")

    exempt: ClassVar[dict[str, str]] = {
        "heads_are_grouped_in_order": "a head's output is a normed difference of two maps",
        "extremes_are_mha_and_mqa": "a difference of two maps is no softmax, however many keys",
    }

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        deep = 0.8 - 0.6 * math.exp(-0.3 * (dims.layer or 0))
        self.lambda_init = deep if config.lambda_init is None else config.lambda_init
        if self.sink_logit is not None and not self.paired:
            self.sink_logit = nn.Parameter(torch.zeros(2 * self.n_heads))
        self.head_norm = _norm(2 * self.width, config.head_eps, dims)
        for name in LAMBDAS:
            self.register_parameter(name, nn.Parameter(torch.empty(self.width)))
        self.reset_parameters()

    def make_linears(self, config: Config, dims: Dims) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().make_linears(config, dims)
        self.paired = self.n_heads % 2 == 0
        if self.paired and self.n_kv_heads % 2:
            raise RequestError(
                f"model.attn={config.name} makes one head of two: n_heads={self.n_heads} and "
                f"n_kv_heads={self.n_kv_heads} must both be even; choose an even divisor of "
                f"{self.n_heads}."
            )
        if not self.paired and self.head_dim % 2:
            raise RequestError(
                f"model.attn={config.name} splits each of n_heads={self.n_heads} heads in two, but "
                f"head_dim={self.head_dim} is odd: choose an even one, or an even n_heads."
            )
        self.width = self.rotary_dim = self.head_dim if self.paired else self.head_dim // 2
        self.scale = self.width**-0.5
        if config.qk_norm:
            self.q_norm = _norm(self.width, config.qk_norm_eps, dims)
            self.k_norm = _norm(self.width, config.qk_norm_eps, dims)

    @staticmethod
    def kv_heads(config: SoftmaxAttention.Config, dims: Dims) -> int:
        assert isinstance(config, DifferentialAttention.Config)
        return dims.n_heads if config.n_kv_heads is None else config.n_kv_heads

    def reset_parameters(self) -> None:
        """The vectors of lambda as they start: N(0, 0.1)."""
        super().reset_parameters()
        for name in LAMBDAS:
            nn.init.normal_(self.get_parameter(name), std=0.1)

    def score(self, ctx: Context) -> Score | None:
        score, per_head = super().score(ctx), 2 if self.paired else 1
        return None if score is None else MapScore(score, self.n_maps // 2, per_head)

    @property
    def n_maps(self) -> int:
        return self.q.out_features // self.width

    def stored(self) -> tuple[tuple[int, int], tuple[int, int]]:
        n = self.k.out_features // self.width
        return (n, self.width), (n // 2, 2 * self.width)

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        q, k = self._maps(self.q(x)), self._maps(self.k(x))
        v = self.v(x).unflatten(-1, (-1, 2 * self.width)).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = ctx.rotate(q, k)
        mask = self.narrow(ctx.mask)
        if cache is not None:
            assert isinstance(cache, KVCache)
            shown = cache.shown(mask)
            k, v = cache.update(k, v, mask)
            mask = shown
        # All first maps, then all second ones: query head i of either reads its key head i // n.
        plain = not ctx.position.scores and self.sink_logit is None
        if cache is not None and x.shape[1] == 1 and plain:
            first, second = self._in_place(q, k, v, mask, ctx)
        else:
            y = self.attend(q, k, v.repeat(1, 2, 1, 1), mask, ctx)
            first, second = y.chunk(2, 1)
        y = self.head_norm(first - self.strength().to(first.dtype) * second)
        return self.out(y * (1 - self.lambda_init), x)

    def _in_place(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b w s v"],
        mask: Mask,
        ctx: Context,
    ) -> list[Float[Tensor, "b n t v"]]:
        """Both maps' outputs, on views of the cache: for one token, copies of it cost the most."""
        return [
            torch.cat([self.attend(a, b, half, mask, ctx) for half in v.chunk(2, -1)], -1)
            for a, b in zip(q.chunk(2, 1), k.chunk(2, 1), strict=True)
        ]

    def strength(self) -> Float[Tensor, ""]:
        """lambda, in float32."""
        found = [self.get_parameter(name) for name in LAMBDAS]
        a1, b1, a2, b2 = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in found)
        return (a1 * b1).sum().exp() - (a2 * b2).sum().exp() + self.lambda_init

    def _maps(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t k"]:
        """The first maps of all heads, then the second ones."""
        return x.unflatten(-1, (-1, 2, self.width)).permute(0, 3, 2, 1, 4).flatten(1, 2)


LAMBDAS = ("lambda_a1", "lambda_b1", "lambda_a2", "lambda_b2")


def _norm(width: int, eps: float, dims: Dims) -> RMSNorm:
    return RMSNorm(RMSNorm.Config(eps=eps), replace(dims, dim=width))
