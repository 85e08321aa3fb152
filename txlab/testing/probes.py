"""Each kind of network part as a function of one tensor, so that all can be asked the same."""

from typing import Any

import torch
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.nn.attention import MHA, Mixer
from txlab.nn.backend import Auto, Backend, Math
from txlab.nn.cache import Cache, LayerCache
from txlab.nn.context import Context
from txlab.nn.mask import Mask
from txlab.nn.norm import RMSNorm
from txlab.nn.position import NoPosition, Position
from txlab.testing import tiny
from txlab.testing.harness import Subject

NETWORK = ("model", "model.attn", "model.pos", "model.norm", "model.residual", "model.ffn")
"""Slots whose options are modules."""


class Probe(nn.Module):
    """A part at a size: `probe(x) -> y`, `probe.inputs(...)` makes an x."""

    def __init__(self, part: Any, dims: Dims) -> None:
        super().__init__()
        self.part, self.dims = part, dims

    def inputs(self, rows: int = 2, length: int = 7, *, seed: int = 0) -> Tensor:
        """A standard normal x [b t d] of the part's own dtype."""
        x = tiny.floats(rows, length, self.dims.dim, seed=seed)
        return x.to(next((p.dtype for p in self.parameters()), x.dtype))

    def width(self) -> int:
        """Channels of the output."""
        return self.dims.dim


class NormProbe(Probe):
    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


class FFNProbe(Probe):
    def __init__(self, part: Any, dims: Dims) -> None:
        super().__init__(part, dims)
        self.position = NoPosition(NoPosition.Config(), dims)
        self.backend = Math(Math.Config(), dims)

    def forward(self, x: Tensor) -> Tensor:
        mask = Mask(x.shape[1], x.shape[1])
        positions = torch.arange(x.shape[1], device=x.device)[None]
        y = self.part(x, Context(mask, positions, self.position, positions, self.backend))
        return y[0] if isinstance(y, tuple) else y


class MixerProbe(Probe):
    """A mixer with its surroundings: mask, positions, scheme, backend."""

    def __init__(
        self,
        part: Mixer,
        dims: Dims,
        *,
        position: Position | None = None,
        backend: Backend | None = None,
    ) -> None:
        super().__init__(part, dims)
        self.position = position or NoPosition(NoPosition.Config(), dims)
        # The definition, but for a mixer that it cannot serve: one that pins its kernel.
        if backend is None:
            able = part.features <= Math.supports
            backend = Math(Math.Config(), dims) if able else Auto(Auto.Config(), dims)
        self.backend = backend.pick(part.features)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        mask = mask or Mask(x.shape[1], x.shape[1])
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)[None]
        position = self.position.for_heads(self.part.rotary_dim)
        ctx = Context(mask, positions, position, position.prepare(positions), self.backend)
        narrow = self.part.narrow(mask)
        self.backend.prepare(narrow if cache is None else cache.shown(narrow), x)
        return self.part(x, ctx, cache)

    def new_cache(self, rows: int, length: int, x: Tensor) -> Cache:
        """Decoding state of this one layer."""
        return Cache([self.part.new_cache(rows, length, x.device, x.dtype)], length)

    def step(self, x: Tensor, cache: Cache, valid: Tensor | None = None) -> Tensor:
        """The next tokens x [b n d] after those in the cache."""
        mask, positions = cache.place(x.shape[0], x.shape[1], valid, x.device)
        return self(x, mask=mask, positions=positions, cache=cache.layers[0])


class PositionProbe(Probe):
    """A scheme at all its sites: x plus bare attention over it, without a mask."""

    part: Position

    def __init__(self, part: Position, dims: Dims) -> None:
        super().__init__(part, dims)
        wide = dims.n_heads * dims.head_dim
        self.into = [tiny.floats(dims.dim, wide, seed=i) * dims.dim**-0.5 for i in (1, 2, 3)]
        self.back = tiny.floats(wide, dims.dim, seed=4) * wide**-0.5

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)[None]
        embedded = self.part.embed(x, positions)
        heads = (self.dims.n_heads, self.dims.head_dim)
        q, k, v = (
            (embedded @ weight.to(x.dtype)).unflatten(-1, heads).transpose(1, 2)
            for weight in self.into
        )
        scores = self.scores(q, k, positions)
        y = (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(2)
        return embedded + y @ self.back.to(x.dtype)

    def scores(self, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:
        """Attention scores [b h t t] of queries and keys that stand at `positions`."""
        q, k = self.part.rotate(q, k, self.part.prepare(positions))
        scores = q @ k.transpose(-1, -2) * self.dims.head_dim**-0.5
        if not self.part.scores:
            return scores
        h = torch.arange(self.dims.n_heads).view(1, -1, 1, 1)
        bias = self.part.score(h, positions[:, None, :, None], positions[:, None, None, :])
        return scores + bias.to(scores.dtype)


class ResidualProbe(Probe):
    """A rule around two branches, one linear layer each."""

    def __init__(self, part: Any, dims: Dims) -> None:
        super().__init__(part, dims)
        self.branches = nn.ModuleDict(
            {name: nn.Linear(dims.dim, dims.dim, bias=False) for name in ("attn", "ffn")}
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, dict(self.branches.items()))


class ModelProbe(Probe):
    """A whole model, from tokens to logits."""

    def inputs(self, rows: int = 2, length: int = 7, *, seed: int = 0) -> Tensor:
        return tiny.tokens(rows, length, vocab_size=self.dims.vocab_size, seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.part.logits(self.part(x).states)

    def width(self) -> int:
        return self.dims.vocab_size


def probe(
    subject: Subject, dims: Dims = tiny.DIMS, *, seed: int = 0, shaken: bool = True, **fields: Any
) -> Any:
    """The subject's probe at this size in evaluation mode; `fields` are set in its config."""
    with tiny.seeded(seed):
        built = _build(subject, dims, fields)
    if shaken:
        tiny.shake(built, seed + 1)
    return built.eval()


def _build(subject: Subject, dims: Dims, fields: dict[str, Any]) -> Probe:
    match subject.slot.path:
        case "model":
            sizes = {
                name: getattr(dims, name)
                for name in ("dim", "n_heads", "head_dim", "n_layers", "context", "vocab_size")
            }
            config: Any = subject.config(**sizes | fields)
            return ModelProbe(subject.build(config.dims(), config=config), dims)
        case "model.attn":
            return MixerProbe(subject.build(dims.at(0), config=subject.config(**fields)), dims)
        case "model.pos":
            return PositionProbe(subject.build(dims, config=subject.config(**fields)), dims)
        case "model.norm":
            return NormProbe(subject.build(dims, config=subject.config(**fields)), dims)
        case "model.residual":
            rule = subject.build(
                dims.at(0),
                config=subject.config(**fields),
                branches=("attn", "ffn"),
                make_norm=lambda: RMSNorm(RMSNorm.Config(), dims),
            )
            return ResidualProbe(rule, dims)
        case "model.ffn":
            return FFNProbe(subject.build(dims.at(0), config=subject.config(**fields)), dims)
        case path:
            raise ValueError(f"no probe for {path}")


def attention_around(position: Position, dims: Dims, *, seed: int = 0) -> MixerProbe:
    """Multi-head attention that uses `position`, shaken."""
    with tiny.seeded(seed):
        built = MixerProbe(MHA(MHA.Config(), dims.at(0)), dims, position=position)
    tiny.shake(built.part, seed + 1)
    return built.eval()
