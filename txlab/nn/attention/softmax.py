"""What all softmax attentions share: projections, rotation, window, cache, backend."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.attention.mixer import Mixer
from txlab.nn.cache import KVCache, LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask, Score
from txlab.nn.norm.rmsnorm import RMSNorm
from txlab.nn.ring import RingCache


class SoftmaxAttention(Mixer):
    """softmax(q k^T / sqrt(head_dim)) v; options choose the number of key/value heads."""

    @dataclass
    class Config(Mixer.Config):
        """Fields shared by all softmax attentions."""

        window: int | None = None
        """Each token sees itself and the `window - 1` tokens before it; None: all of them."""
        sinks: int = 0
        """The first tokens of each document that all see beyond the window (Xiao et al. 2023)."""
        sink_logit: bool = False
        """A learned logit per head in the softmax's denominator, so that a head may attend to
        nothing (gpt-oss, 2025)."""
        gate: bool = False
        """Multiply the heads' outputs by sigmoid(W x), channel by channel (Qiu et al. 2025)."""
        softcap: float | None = None
        """Squash scores to `softcap * tanh(score / softcap)` (Gemma 2, 2024); None: leave them."""
        qk_norm: bool = False
        """RMSNorm over each head's queries and keys, before rotation (Dehghani et al. 2023)."""
        qk_norm_eps: float = 1e-5
        """Added to the mean square in that norm."""
        dropout: float | None = None
        """Dropout of attention weights; None: the model's dropout."""
        qkv_bias: bool = False
        """Add a bias to the query, key and value projections."""
        out_bias: bool = False
        """Add a bias to the output projection."""

        def __post_init__(self) -> None:
            self.require(self.window is None or self.window > 0, "window", "a number above 0")
            self.require(self.sinks >= 0, "sinks", "a number from 0 up")
            self.require(
                self.sinks == 0 or self.windowed(),
                "sinks",
                "0 without a window, as every token is seen anyway (or set window)",
            )
            self.require(self.softcap is None or self.softcap > 0, "softcap", "a number above 0")
            self.require(
                self.dropout is None or 0 <= self.dropout < 1, "dropout", "0 <= dropout < 1"
            )

        def windowed(self) -> bool:
            """Whether there is a window, set or by default."""
            return self.window is not None

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.n_heads, self.head_dim = dims.n_heads, dims.head_dim
        self.window, self.sinks, self.softcap = config.window, config.sinks, config.softcap
        self.dropout = dims.dropout if config.dropout is None else config.dropout
        self.scale = self.head_dim**-0.5
        self.make_linears(config, dims)
        wide = self.o.in_features
        self.gate = nn.Linear(dims.dim, wide, bias=False) if config.gate else None
        self.sink_logit = nn.Parameter(torch.zeros(self.n_heads)) if config.sink_logit else None

    def make_linears(self, config: Config, dims: Dims) -> None:
        """Make the projections and the norms of heads; an option with others overrides this."""
        self.n_kv_heads = self.kv_heads(config, dims)
        if not 0 < self.n_kv_heads <= self.n_heads or self.n_heads % self.n_kv_heads:
            raise RequestError(
                f"model.attn={config.name}: n_heads={self.n_heads} is not a multiple of "
                f"n_kv_heads={self.n_kv_heads}; choose a divisor of {self.n_heads}."
            )
        wide, narrow = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.q = nn.Linear(dims.dim, wide, bias=config.qkv_bias)
        self.k = nn.Linear(dims.dim, narrow, bias=config.qkv_bias)
        self.v = nn.Linear(dims.dim, narrow, bias=config.qkv_bias)
        self.o = nn.Linear(wide, dims.dim, bias=config.out_bias)
        head = replace(dims, dim=self.head_dim)
        head_norm = RMSNorm.Config(eps=config.qk_norm_eps)
        self.q_norm = RMSNorm(head_norm, head) if config.qk_norm else None
        self.k_norm = RMSNorm(head_norm, head) if config.qk_norm else None

    @staticmethod
    def kv_heads(config: Config, dims: Dims) -> int:
        """Number of key/value heads of this option."""
        raise NotImplementedError

    @property
    def features(self) -> frozenset[str]:
        asked = {"softcap": self.softcap, "sink_logit": self.sink_logit}
        asked["dropout"] = self.dropout or None
        return frozenset(name for name, value in asked.items() if value is not None)

    def reset_parameters(self) -> None:
        """Sink logits as they start: as much as one key of score 0."""
        if self.sink_logit is not None:
            nn.init.zeros_(self.sink_logit)

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(window=self.window, sinks=self.sinks)

    def score(self, ctx: Context) -> Score | None:
        return ctx.position.score if ctx.position.scores else None

    @property
    def n_maps(self) -> int:
        return self.n_heads

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        (heads, width), values = self.stored()
        window, sinks = self.window, self.sinks
        if window is None or window + sinks >= length:
            return KVCache(batch, heads, length, width, device, dtype, values=values)
        return RingCache(
            batch, heads, width, device, dtype, window=window, sinks=sinks, values=values
        )

    def stored(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Heads and channels of the keys that are cached, and of the values."""
        return (self.n_kv_heads, self.head_dim), (self.n_kv_heads, self.head_dim)

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        q, k, v = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = ctx.rotate(q, k)
        mask = self.narrow(ctx.mask)
        if cache is not None:
            assert isinstance(cache, KVCache)
            shown = cache.shown(mask)
            k, v = cache.update(k, v, mask)
            mask = shown
        return self.out(self.attend(q, k, v, mask, ctx), x)

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        ctx: Context,
        *,
        gain: float = 1.0,
    ) -> Float[Tensor, "b h t v"]:
        """Softmax attention by the backend, with all that the config asks for; `gain`: multiplies
        q k^T."""
        return ctx.backend.attend(
            q,
            k,
            v,
            mask,
            scale=self.scale * gain,
            score=self.score(ctx),
            softcap=self.softcap,
            sink_logit=self.sink_logit,
            dropout=self.dropout if self.training else 0.0,
        )

    def out(self, y: Float[Tensor, "b h t v"], x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """The heads' outputs, joined, gated by x where there is a gate, and projected back."""
        y = y.transpose(1, 2).flatten(2)
        return self.o(y if self.gate is None else y * self.gate(x).sigmoid())

    def _heads(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t k"]:
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)
