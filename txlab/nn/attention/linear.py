"""Linear attention: a feature map in place of the softmax, a state of fixed size as the past."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.attention.chunks import all_sums, causal_sums
from txlab.nn.attention.mixer import Mixer, attention
from txlab.nn.backend.backend import Backend
from txlab.nn.cache import LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.norm.rmsnorm import RMSNorm
from txlab.nn.position.position import Position


class Feature(str, Enum):
    """What is done to each channel of queries and keys."""

    elu = "elu"
    """elu(x) + 1, above 0 everywhere (Katharopoulos et al. 2020)."""
    relu = "relu"
    """max(x, 0)."""
    identity = "identity"
    """x itself."""


class Normalizer(str, Enum):
    """What keeps the output's size from growing with the number of tokens."""

    sum = "sum"
    """Divide by the sum of the weights, as a softmax does."""
    rms = "rms"
    """RMSNorm over each head's output (TransNormer, Qin et al. 2022)."""


class RecurrentCache(LayerCache):
    """sum of f(k) v^T and sum of f(k) over each row's tokens, in float32; no place for a token."""

    def __init__(
        self, batch: int, n_heads: int, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        exact = torch.promote_types(dtype, torch.float32)
        shape = (batch, n_heads, head_dim)
        self.values = torch.zeros(*shape, head_dim, device=device, dtype=exact)
        self.weights = torch.zeros(*shape, 1, device=device, dtype=exact)

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        self.values, self.weights = self.values[rows], self.weights[rows]

    def crop(self, length: int) -> None:
        raise RequestError(
            "model.attn=linear keeps one sum over all tokens, which cannot forget the last ones: "
            "make a new cache and read the first ones again."
        )

    def bytes_per_token(self) -> int:
        return 0


@attention("linear")
class LinearAttention(Mixer):
    """Linear attention (Katharopoulos et al. 2020): weights f(q) . f(k), sums carried along.

    y_i = sum_j f(q_i) . f(k_j) v_j / sum_j f(q_i) . f(k_j), in time linear in the length: training
    in chunks, decoding from a state of head_dim x head_dim numbers a head. Rotary positions turn
    the features above the fraction bar only (Su et al. 2021, eq. 19). Sums are made in float32.
    """

    @dataclass
    class Config(Mixer.Config):
        """Fields of linear attention."""

        feature: Feature = Feature.elu
        """The feature map f: elu (elu(x) + 1), relu or identity."""
        normalizer: Normalizer = Normalizer.sum
        """sum: weights of a query sum to 1. rms: RMSNorm over each head's output instead."""
        qkv_bias: bool = False
        """Add a bias to the query, key and value projections."""
        out_bias: bool = False
        """Add a bias to the output projection."""

        def __post_init__(self) -> None:
            self.require(
                self.feature != Feature.identity or self.normalizer == Normalizer.rms,
                "normalizer",
                "rms, since weights of feature=identity may sum to 0",
            )

    attends: ClassVar[bool] = False
    exempt: ClassVar[dict[str, str]] = {
        "cache_crops": "a sum over all tokens cannot forget the last ones",
    }

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.n_heads, self.head_dim = dims.n_heads, dims.head_dim
        self.feature = config.feature
        wide = self.n_heads * self.head_dim
        self.q = nn.Linear(dims.dim, wide, bias=config.qkv_bias)
        self.k = nn.Linear(dims.dim, wide, bias=config.qkv_bias)
        self.v = nn.Linear(dims.dim, wide, bias=config.qkv_bias)
        self.o = nn.Linear(wide, dims.dim, bias=config.out_bias)
        head = replace(dims, dim=self.head_dim)
        rms = config.normalizer == Normalizer.rms
        self.norm = RMSNorm(RMSNorm.Config(), head) if rms else None

    def refuse(self, position: Position, backend: Backend) -> str | None:
        if position.scores:
            return (
                f"model.pos={position.name} adds a bias to the scores inside a softmax, and there "
                "is none: use model.pos=rope, or another option of model.attn"
            )
        if backend.name != "auto":
            return (
                f"model.backend={backend.name} computes softmax attention, which this is not: "
                "use model.backend=auto"
            )
        return None

    def new_cache(
        self, batch: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> LayerCache:
        return RecurrentCache(batch, self.n_heads, self.head_dim, device, dtype)

    def forward(
        self, x: Float[Tensor, "b t d"], ctx: Context, cache: LayerCache | None = None
    ) -> Float[Tensor, "b t d"]:
        q, k, v = self.q(x), self.k(x), self.v(x)
        exact = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            q, k = self._heads(self._map(q.to(exact))), self._heads(self._map(k.to(exact)))
            y = self._mix(q, k, self._heads(v.to(exact)), ctx, cache).to(v.dtype)
        return self.o((y if self.norm is None else self.norm(y)).transpose(1, 2).flatten(2))

    def _mix(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b h t k"],
        v: Float[Tensor, "b h t k"],
        ctx: Context,
        cache: LayerCache | None,
    ) -> Float[Tensor, "b h t k"]:
        """Weighted values of features q and k."""
        mask = ctx.mask
        if mask.window is not None:
            raise RequestError("model.attn=linear has no window: choose model.attn=gqa for one.")
        there = _there(mask)
        if there is not None:
            k = k * there[:, None, :, None]
        turned_q, turned_k = ctx.rotate(q, k)
        assert cache is None or isinstance(cache, RecurrentCache)
        if self.norm is not None:
            return _sums(turned_q, turned_k, v, mask, None if cache is None else cache.values)
        if cache is None and turned_q is q:
            # The same weights above and below the fraction bar: make them once.
            y, weight = _sums(q, k, F.pad(v, (0, 1), value=1.0), mask, None).tensor_split([-1], -1)
        else:
            ones = torch.ones_like(v[..., :1])
            y = _sums(turned_q, turned_k, v, mask, None if cache is None else cache.values)
            weight = _sums(q, k, ones, mask, None if cache is None else cache.weights)
        # Where nothing is seen, or every feature is 0, y is 0 as well.
        return y / weight.masked_fill(weight == 0, 1.0)

    def _map(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        match self.feature:
            case Feature.elu:
                # elu(x) + 1; the gradient of F.elu has other strides than its trace in a compiler.
                return x.clamp(max=0).exp() + F.relu(x)
            case Feature.relu:
                return F.relu(x)
            case Feature.identity:
                return x

    def _heads(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b h t k"]:
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)


def _there(mask: Mask) -> Bool[Tensor, "b t"] | None:
    """Which of the new tokens are no padding; None: all."""
    if not mask.padded:
        return mask.valid
    assert isinstance(mask.q_index, Tensor)
    return mask.q_index < mask.n_keys


def _sums(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    mask: Mask,
    state: Float[Tensor, "b h k v"] | None,
) -> Float[Tensor, "b h t v"]:
    """Sum over the visible j of (q_i . k_j) v_j; `state` is read first and brought up to date."""
    if not mask.causal:
        return all_sums(q, k, v, documents=mask.documents)
    if state is None:
        return causal_sums(q, k, v, documents=mask.documents)[0]
    if q.shape[2] == 1:
        state += k.transpose(-1, -2) @ v
        return q @ state
    y, after = causal_sums(q, k, v, state=state)
    state.copy_(after)
    return y
