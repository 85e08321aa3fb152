"""The layers of a body, each with its own mixer, feed-forward, positions and backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.attention.cross import CrossAttention
from txlab.nn.attention.mixer import Mixer, attention
from txlab.nn.auxiliary import Aux
from txlab.nn.backend.backend import Backend
from txlab.nn.block import Block
from txlab.nn.cache import Cache
from txlab.nn.context import Context
from txlab.nn.ffn.ffn import FFN, ffn
from txlab.nn.mask import Mask
from txlab.nn.norm.norm import Norm, norm
from txlab.nn.position.position import Position
from txlab.nn.residual.residual import Residual, residual


@dataclass(frozen=True)
class LayerPlan:
    """What one layer is made of."""

    attn: Mixer.Config
    ffn: FFN.Config
    position: Position
    cross: CrossAttention.Config | None = None
    """Cross-attention to a memory, between the two; None: none."""


class Stack(nn.ModuleList):
    """`x, aux = stack(x, mask, positions, cache)`; a list, so names read `layers.3.attn`."""

    def __init__(
        self,
        plans: Sequence[LayerPlan],
        dims: Dims,
        *,
        backend: Backend,
        norm_config: Norm.Config,
        residual_config: Residual.Config,
    ) -> None:
        super().__init__()
        self.groups: list[int] = []
        """Number of the context that each layer reads."""
        self._parts: list[tuple[Position, Backend]] = []
        self._schemes: dict[tuple[int, int], Position] = {}
        for i, plan in enumerate(plans):
            at = dims.at(i)
            mixer = attention.build(plan.attn, at)
            reason = mixer.refuse(plan.position, backend)
            if reason is not None:
                raise RequestError(f"model.attn={plan.attn.name}: {reason}.")

            def make_residual(branches: tuple[str, ...], at: Dims = at) -> Residual:
                return residual.build(
                    residual_config,
                    at,
                    branches=branches,
                    make_norm=lambda: norm.build(norm_config, at),
                )

            cross = None if plan.cross is None else CrossAttention(plan.cross, at)
            self.append(Block(mixer, ffn.build(plan.ffn, at), make_residual, cross))
            needs = mixer.features | ({"score"} if plan.position.scores else frozenset())
            needs |= frozenset() if cross is None else cross.features
            turned = self._scheme(plan.position, mixer.rotary_dim)
            try:
                self.groups.append(self._group(turned, backend.pick(needs)))
            except RequestError as error:
                who = f"model.attn={plan.attn.name} with model.pos={plan.position.name}"
                raise RequestError(f"{who}: {error}") from error

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        mask: Mask,
        positions: Int[Tensor, "#b t"],
        cache: Cache | None = None,
        *,
        memory: Float[Tensor, "b s d"] | None = None,
        memory_mask: Mask | None = None,
    ) -> tuple[Float[Tensor, "b t d"], Aux]:
        """`memory`: what the layers' cross-attention reads; `memory_mask`: which of it exists."""
        contexts = [
            Context(
                mask,
                positions,
                position,
                position.prepare(positions),
                backend,
                memory=memory,
                memory_mask=memory_mask,
            )
            for position, backend in self._parts
        ]
        total = Aux()
        if any(position.scores for position, _ in self._parts):
            _ = mask.gapped  # told by numbers: read before the graph of a block is traced
        for i, block in enumerate(self.blocks()):
            ctx = contexts[self.groups[i]]
            if block.attn.attends:
                narrow = block.attn.narrow(mask)
                ctx.backend.prepare(narrow if cache is None else cache.layers[i].shown(narrow), x)
                score = block.attn.score(ctx) if cache is None else None
                if score is not None:
                    ctx.backend.prepare_score(narrow, score, block.attn.n_maps, x)
            if block.cross is not None and memory_mask is not None:
                ctx.backend.prepare(memory_mask, x)
            x, aux = block(x, ctx, None if cache is None else cache.layers[i])
            total = total.plus(aux)
        return x, total

    def blocks(self) -> list[Block]:
        """The layers, in order."""
        return [cast(Block, block) for block in self]

    def new_cache(self, batch: int, length: int, device: torch.device, dtype: torch.dtype) -> Cache:
        """Empty decoding state of every layer, for `batch` rows of at most `length` tokens."""
        layers = [block.new_cache(batch, length, device, dtype) for block in self.blocks()]
        return Cache(layers, length)

    def rebalance(self, loads: Sequence[Tensor]) -> None:
        """Move the balancing biases by a whole step's loads, in the order that `Aux` has them."""
        biased = [ffn for block in self.blocks() if (ffn := block.ffn).balances]
        for layer, load in zip(biased, loads, strict=True):
            layer.rebalance(load)

    def kernels(self) -> list[Backend]:
        """The backends of all layers, each once."""
        return list({id(backend): backend for _, backend in self._parts}.values())

    def backends(self) -> list[str]:
        """Name of the backend that each layer computes with; none where its mixer needs none."""
        return [
            self._parts[group][1].name if block.attn.attends else "none"
            for group, block in zip(self.groups, self.blocks(), strict=True)
        ]

    def schemes(self) -> list[Position]:
        """The positional scheme of each layer."""
        return [self._parts[group][0] for group in self.groups]

    def _scheme(self, position: Position, head_dim: int) -> Position:
        """The scheme for heads of this width, one object for all layers that ask for the same."""
        key = id(position), head_dim
        if key not in self._schemes:
            self._schemes[key] = position.for_heads(head_dim)
        return self._schemes[key]

    def _group(self, position: Position, backend: Backend) -> int:
        for number, (p, b) in enumerate(self._parts):
            if p is position and b is backend:
                return number
        self._parts.append((position, backend))
        return len(self._parts) - 1
