"""Multi-head latent attention: keys and values are made from one small vector a token."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.attention.mixer import attention
from txlab.nn.attention.softmax import SoftmaxAttention
from txlab.nn.cache import KVCache, LayerCache
from txlab.nn.context import Context
from txlab.nn.norm.rmsnorm import RMSNorm


@attention("mla")
class MLA(SoftmaxAttention):
    """Multi-head latent attention (DeepSeek-V2, 2024): a cache of one latent vector a token.

    c = norm(W x) of kv_rank channels gives every head its keys (nope_dim) and values (v_dim); a
    rotary key of rope_dim channels, shared by all heads, tells positions. The cache holds both.
    Long inputs expand keys and values; short ones on a cache project queries into the latent space
    instead, where every head reads the same keys: the same numbers, without an expanded cache.
    """

    @dataclass
    class Config(SoftmaxAttention.Config):
        """Fields of latent attention."""

        kv_rank: int | None = None
        """Channels of the latent; None: 4 head_dim, as in the paper, but no more than dim."""
        q_rank: int | None = None
        """Channels that queries pass through, with a norm; None: straight from x (V2-Lite)."""
        rope_dim: int | None = None
        """Channels of the shared rotary key; None: half of head_dim, made even."""
        nope_dim: int | None = None
        """Channels of each head's own key, which do not turn; None: head_dim."""
        v_dim: int | None = None
        """Channels of each head's value; None: head_dim."""
        latent_eps: float = 1e-6
        """Added to the mean square in the norms of latents."""

        def __post_init__(self) -> None:
            super().__post_init__()
            for name in ("kv_rank", "q_rank", "nope_dim", "v_dim"):
                value = getattr(self, name)
                self.require(value is None or value > 0, name, "a number above 0")
            even = self.rope_dim is None or (self.rope_dim > 0 and self.rope_dim % 2 == 0)
            self.require(even, "rope_dim", "an even number above 0")
            self.require(self.latent_eps > 0, "latent_eps", "a number above 0")

    def make_linears(self, config: Config, dims: Dims) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        h, width = self.n_heads, self.head_dim
        self.kv_rank = config.kv_rank or min(4 * width, dims.dim)
        self.rope_dim = self.rotary_dim = config.rope_dim or max(2, width // 2 + width // 2 % 2)
        self.nope_dim, self.v_dim = config.nope_dim or width, config.v_dim or width
        qk = self.nope_dim + self.rope_dim
        self.scale = qk**-0.5
        self.q_down = self.q_down_norm = None
        if config.q_rank is None:
            self.q = nn.Linear(dims.dim, h * qk, bias=config.qkv_bias)
        else:
            self.q_down = nn.Linear(dims.dim, config.q_rank, bias=config.qkv_bias)
            self.q_down_norm = _norm(config.q_rank, config.latent_eps, dims)
            self.q = nn.Linear(config.q_rank, h * qk, bias=False)
        self.kv_down = nn.Linear(dims.dim, self.kv_rank, bias=config.qkv_bias)
        self.kv_down_norm = _norm(self.kv_rank, config.latent_eps, dims)
        self.k_rope = nn.Linear(dims.dim, self.rope_dim, bias=config.qkv_bias)
        self.k = nn.Linear(self.kv_rank, h * self.nope_dim, bias=False)
        self.v = nn.Linear(self.kv_rank, h * self.v_dim, bias=False)
        self.o = nn.Linear(h * self.v_dim, dims.dim, bias=config.out_bias)
        eps = config.qk_norm_eps
        self.q_norm = _norm(self.nope_dim, eps, dims) if config.qk_norm else None
        self.k_norm = _norm(self.nope_dim, eps, dims) if config.qk_norm else None

    def stored(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (1, self.kv_rank + self.rope_dim), (1, 0)

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        q_own, q_rope = self._queries(x)
        latent, k_rope = (
            self.kv_down_norm(self.kv_down(x)).unsqueeze(1),
            self.k_rope(x).unsqueeze(1),
        )
        q_rope, k_rope = ctx.rotate(q_rope, k_rope)
        mask, gain = self.narrow(ctx.mask), ctx.position.latent_gain
        if cache is not None:
            assert isinstance(cache, KVCache)
            new = torch.cat((latent, k_rope), -1)
            shown = cache.shown(mask)
            stored, _ = cache.update(new, new[..., :0], mask)
            mask = shown
            if self.absorbs(x.shape[1]):
                w = self.k.weight.unflatten(0, (self.n_heads, -1))
                q = torch.cat((torch.einsum("bhtn,hnr->bhtr", q_own, w), q_rope), -1)
                y = self.attend(q, stored, stored, mask, ctx, gain=gain)[..., : self.kv_rank]
                w = self.v.weight.unflatten(0, (self.n_heads, -1))
                return self.out(torch.einsum("bhtr,hvr->bhtv", y, w), x)
            latent, k_rope = stored.split((self.kv_rank, self.rope_dim), -1)
        k, v = self._split(self.k(latent[:, 0])), self._split(self.v(latent[:, 0]))
        if self.k_norm is not None:
            k = self.k_norm(k)
        k = torch.cat((k, k_rope.expand(-1, self.n_heads, -1, -1)), -1)
        q = torch.cat((q_own, q_rope), -1)
        return self.out(self.attend(q, k, v, mask, ctx, gain=gain), x)

    def absorbs(self, t: int) -> bool:
        """Whether t queries on a cache go into the latent space rather than keys out of it.

        It takes fewer operations while there are few queries. Normed keys have no linear way
        back, and adapted projections are more than their weights.
        """
        own = self.nope_dim + self.v_dim
        plain = type(self.k) is nn.Linear and type(self.v) is nn.Linear
        return plain and self.k_norm is None and t * (2 * self.kv_rank - own) <= self.kv_rank * own

    def _queries(
        self, x: Float[Tensor, "b t d"]
    ) -> tuple[Float[Tensor, "b h t n"], Float[Tensor, "b h t r"]]:
        if self.q_down is not None and self.q_down_norm is not None:
            x = self.q_down_norm(self.q_down(x))
        own, rope = self._split(self.q(x)).split((self.nope_dim, self.rope_dim), -1)
        return own if self.q_norm is None else self.q_norm(own), rope

    def _split(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t k"]:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


def _norm(width: int, eps: float, dims: Dims) -> RMSNorm:
    return RMSNorm(RMSNorm.Config(eps=eps), replace(dims, dim=width))
