"""The causal language model: GPT, Llama, Mistral and their kin are choices of its slots."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.models.model import Model, Output, model_slot
from txlab.nn.attention import attention
from txlab.nn.backend import backend
from txlab.nn.cache import Cache
from txlab.nn.ffn import ffn
from txlab.nn.init import init
from txlab.nn.mask import Mask
from txlab.nn.norm import norm
from txlab.nn.pattern import layer_configs
from txlab.nn.position import Position, position
from txlab.nn.residual import residual
from txlab.nn.stack import LayerPlan, Stack


@model_slot("decoder")
class Decoder(Model):
    """Causal decoder (Radford et al. 2019): each token sees itself and the tokens before it."""

    @dataclass
    class Config(Model.Config):
        """No fields beyond those of every model."""

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__()
        self.config, self.dims = config, dims
        self.embed = nn.Embedding(dims.vocab_size, dims.dim)
        self.pos: Position = position.build(config.pos, dims)
        self.layers = self._stack(config, dims)
        final = residual.option_of(config.residual).cls.final_norm
        self.norm = norm.build(config.norm, dims) if final else None
        self.head = nn.Linear(dims.dim, dims.vocab_size, bias=False)
        _tie(self)
        self.register_load_state_dict_post_hook(_tie)
        start = init.build(config.init, dims)
        start.apply(self)
        self.logit_scale = start.logit_scale

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        *,
        positions: Int[Tensor, "#b t"] | None = None,
        documents: Int[Tensor, "b t"] | None = None,
        valid: Bool[Tensor, "b t"] | None = None,
        globals: Bool[Tensor, "b t"] | None = None,
        cache: Cache | None = None,
    ) -> Output:
        """Hidden states of `tokens`.

        `positions`: default 0, 1, 2 ..., not counting padding. `documents`: tokens of different
        documents do not see each other. `valid`: False at padding, wherever it stands.
        `globals`: tokens that see and are seen by all, where the attention has such; None: by its
        own rule. On a cache, from the first call on or never.
        `cache`: the tokens follow those already in it.
        """
        mask, placed = self._frame(tokens, documents, valid, globals, cache)
        if positions is None:
            positions = placed
        x = self.pos.embed(self.embed(tokens), positions)
        if self.training and self.dims.dropout:
            x = nn.functional.dropout(x, self.dims.dropout)
        x, aux = self.layers(x, mask, positions, cache)
        x = x if self.norm is None else self.norm(x)
        return Output(x if self.logit_scale == 1 else x * self.logit_scale, aux)

    def new_cache(self, batch: int, length: int) -> Cache:
        kind, dtype = self.device.type, self.embed.weight.dtype
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        return self.layers.new_cache(batch, length, self.device, dtype)

    def rebalance(self, loads: Sequence[Tensor]) -> None:
        self.layers.rebalance(loads)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Decoder":
        # Leaving or entering the meta device makes a new tensor for each use of a parameter.
        super()._apply(fn, recurse)
        _tie(self)
        return self

    def _frame(
        self,
        tokens: Int[Tensor, "b t"],
        documents: Int[Tensor, "b t"] | None,
        valid: Bool[Tensor, "b t"] | None,
        globals_: Bool[Tensor, "b t"] | None,
        cache: Cache | None,
    ) -> tuple[Mask, Int[Tensor, "#b t"]]:
        """The mask and the positions of a forward pass; RequestError past the last position."""
        batch, n = tokens.shape
        if globals_ is not None and not any(b.attn.names_globals for b in self.layers.blocks()):
            raise RequestError(
                f"globals: model.attn={self.config.attn.name} has no global tokens: use "
                "model.attn=longformer, or leave globals out."
            )
        if cache is not None:
            if documents is not None:
                raise RequestError(
                    "documents and cache exclude each other: decode one document a row."
                )
            mask, positions = cache.place(batch, n, valid, tokens.device, globals_)
        else:
            mask = Mask(n, n, documents=documents, valid=valid, globals_=globals_)
            if valid is None:
                positions = torch.arange(n, device=tokens.device)[None]
            else:
                positions = (valid.cumsum(1) - 1).clamp(min=0)
        limit = self.pos.limit()
        if limit is not None and mask.n_keys > limit:
            raise RequestError(
                f"{mask.n_keys} tokens, but model.pos={self.config.pos.name} has only {limit} "
                "positions: shorten the input, or train with a larger model.context."
            )
        return mask, positions

    def _stack(self, config: Config, dims: Dims) -> Stack:
        n = dims.n_layers
        attns = layer_configs(attention, config.pattern.attn, config.attn, n)
        ffns = layer_configs(ffn, config.pattern.ffn, config.ffn, n)
        schemes = layer_configs(position, config.pattern.pos, config.pos, n)
        made: dict[int, Position] = {id(config.pos): self.pos}
        for scheme in schemes:
            if id(scheme) not in made:
                made[id(scheme)] = position.build(scheme, dims)
        extra = [p for p in made.values() if p is not self.pos]
        for scheme in extra:
            if type(scheme).embed is not Position.embed:
                raise RequestError(
                    f"model.pattern.pos: {scheme.name} is added to the embeddings, once and before "
                    f"all layers: choose it as model.pos={scheme.name}."
                )
        if extra:
            self.layer_pos = nn.ModuleList(extra)
        return Stack(
            [LayerPlan(a, f, made[id(p)]) for a, f, p in zip(attns, ffns, schemes, strict=True)],
            dims,
            backend=backend.build(config.backend, dims),
            norm_config=config.norm,
            residual_config=config.residual,
        )


def _tie(model: Decoder, *_: Any) -> None:
    if model.config.tie_embeddings and model.head.weight is not model.embed.weight:
        model.head.weight = model.embed.weight
