"""The slot of models, and what every family of them shares."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from txlab.core.config import Component, Dims
from txlab.core.errors import RequestError
from txlab.core.slot import Slot
from txlab.nn.attention import GQA, Mixer
from txlab.nn.auxiliary import Aux
from txlab.nn.backend import Auto, Backend
from txlab.nn.cache import Cache
from txlab.nn.ffn import FFN, SwiGLU
from txlab.nn.init import GPT2Init, Init
from txlab.nn.norm import Norm, RMSNorm
from txlab.nn.pattern import Pattern
from txlab.nn.position import Position, RoPE
from txlab.nn.residual import Pre, Residual


class Output(NamedTuple):
    """What a body returns: hidden states (logits are made on demand) and auxiliary losses."""

    states: Float[Tensor, "b t d"]
    aux: Aux


class Model(nn.Module):
    """A body with embedding and head; families differ by their list of parts and their mask."""

    @dataclass
    class Config(Component):
        """Sizes, once for the whole model, and the choice of every part."""

        dim: int = 256
        """Width of the residual stream."""
        n_layers: int = 4
        """Number of layers."""
        n_heads: int = 4
        """Number of query heads."""
        head_dim: int | None = None
        """Width of a head; None: dim / n_heads."""
        context: int = 256
        """Length in tokens that the model is trained at."""
        vocab_size: int | None = None
        """Rows of the embedding; None: as many as the tokenizer has ids."""
        tie_embeddings: bool = True
        """Use the embedding as the output head too (Press & Wolf 2017)."""
        dropout: float = 0.0
        """Dropout of embeddings, branch outputs and attention weights."""
        init_from: str | None = None
        """Run or checkpoint whose weights the model starts from."""
        attn: Mixer.Config = field(default_factory=lambda: GQA.Config())
        """Token mixer."""
        backend: Backend.Config = field(default_factory=lambda: Auto.Config())
        """Attention kernel."""
        pos: Position.Config = field(default_factory=lambda: RoPE.Config())
        """Positional scheme."""
        norm: Norm.Config = field(default_factory=lambda: RMSNorm.Config())
        """Norm of every branch, and the final one."""
        residual: Residual.Config = field(default_factory=lambda: Pre.Config())
        """Wiring of branches, norms and stream."""
        ffn: FFN.Config = field(default_factory=lambda: SwiGLU.Config())
        """Feed-forward layer."""
        init: Init.Config = field(default_factory=lambda: GPT2Init.Config())
        """How each tensor starts."""
        pattern: Pattern = field(default_factory=Pattern)
        """Options that change from layer to layer."""

        def __post_init__(self) -> None:
            for size in ("dim", "n_layers", "n_heads", "context"):
                self.require(getattr(self, size) > 0, size, "a number above 0")
            for size in ("head_dim", "vocab_size"):
                value = getattr(self, size)
                self.require(value is None or value > 0, size, "a number above 0")
            self.require(0 <= self.dropout < 1, "dropout", "0 <= dropout < 1")
            if self.head_dim is None and self.dim % self.n_heads:
                raise RequestError(
                    f"model.dim={self.dim} is not a multiple of model.n_heads={self.n_heads}: "
                    "change one of them, or set model.head_dim."
                )

        def dims(self) -> Dims:
            """The sizes that components are built with; RequestError without a vocabulary size."""
            if self.vocab_size is None:
                raise RequestError(
                    "model.vocab_size is not set: give it, or build with a tokenizer."
                )
            return Dims(
                dim=self.dim,
                n_heads=self.n_heads,
                head_dim=self.head_dim or self.dim // self.n_heads,
                n_layers=self.n_layers,
                context=self.context,
                vocab_size=self.vocab_size,
                dropout=self.dropout,
            )

    config: Config
    dims: Dims
    head: nn.Linear
    """Output head, without bias; its weight is the embedding's own tensor when tied."""

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
        raise NotImplementedError

    def new_cache(self, batch: int, length: int) -> Cache:
        """Empty decoding state for `batch` rows of at most `length` tokens."""
        raise NotImplementedError

    def rebalance(self, loads: Sequence[Tensor]) -> None:
        """Move the balancing biases of its mixtures by a whole step's `Aux.loads`."""
        raise NotImplementedError

    def logits(self, states: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v"]:
        """Scores of every token of the vocabulary."""
        return self.head(states)

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return self.head.weight.device


model_slot = Slot("model", Model, doc="The family of the network: its parts and its mask.")
