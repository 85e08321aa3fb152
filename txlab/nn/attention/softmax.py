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


class SoftmaxAttention(Mixer):
    """softmax(q k^T / sqrt(head_dim)) v; options choose the number of key/value heads."""

    @dataclass
    class Config(Mixer.Config):
        """Fields shared by all softmax attentions."""

        window: int | None = None
        """Each token sees itself and the `window - 1` tokens before it; None: all of them."""
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
            self.require(self.softcap is None or self.softcap > 0, "softcap", "a number above 0")
            self.require(
                self.dropout is None or 0 <= self.dropout < 1, "dropout", "0 <= dropout < 1"
            )

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.n_heads, self.head_dim = dims.n_heads, dims.head_dim
        self.window, self.softcap = config.window, config.softcap
        self.dropout = dims.dropout if config.dropout is None else config.dropout
        self.scale = self.head_dim**-0.5
        self.make_linears(config, dims)

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
        return frozenset({"softcap"} if self.softcap is not None else ())

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(window=self.window)

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        return KVCache(batch, self.n_kv_heads, length, self.head_dim, device, dtype)

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
            k, v = cache.update(k, v, mask)
        return self.out(self.attend(q, k, v, mask, ctx))

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        ctx: Context,
        score: Score | None = None,
    ) -> Float[Tensor, "b h t v"]:
        """Softmax attention by the backend, with all that the config asks for; `score`: instead of
        the positional scheme's own."""
        if score is None and ctx.position.scores:
            score = ctx.position.score
        return ctx.backend.attend(
            q,
            k,
            v,
            mask,
            scale=self.scale,
            score=score,
            softcap=self.softcap,
            dropout=self.dropout if self.training else 0.0,
        )

    def out(self, y: Float[Tensor, "b h t v"]) -> Float[Tensor, "b t d"]:
        """The heads' outputs, joined and projected back to the stream."""
        return self.o(y.transpose(1, 2).flatten(2))

    def _heads(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t k"]:
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)
