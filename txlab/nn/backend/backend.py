"""The slot of attention backends: kernels that compute one and the same function."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.core.config import Component, Dims
from txlab.core.errors import RequestError
from txlab.core.slot import Slot
from txlab.nn.mask import Mask, Score


class Backend:
    """Computes softmax attention under a mask. Holds no parameters and no state."""

    @dataclass
    class Config(Component):
        """Fields shared by all backends."""

    supports: ClassVar[frozenset[str]] = frozenset()
    """Features beyond a mask that this backend computes: `softcap`, `score`, `sink_logit`,
    `dropout`, `fused` (never a kernel that holds the scores of all pairs)."""

    def __init__(self, config: Config, dims: Dims) -> None:
        self.name = config.name

    def pick(self, features: frozenset[str]) -> "Backend":
        """The backend for an attention that asks for `features`; RequestError if one is missing."""
        missing = sorted(features - self.supports)
        if missing:
            able = [name for name, o in backend.options.items() if features <= o.cls.supports]
            raise RequestError(
                f"model.backend={self.name} cannot compute {', '.join(missing)}: "
                f"use model.backend={' or '.join(able) or '?'}, or leave {missing[0]} out."
            )
        return self

    def trains(self, device: torch.device) -> bool:
        """Whether there are gradients on this device."""
        return True

    def prepare(self, mask: Mask, x: Tensor) -> None:
        """Lower `mask` once, before the layers run, so that no layer (or compiled graph) has to."""

    def prepare_score(self, mask: Mask, score: Score, n_heads: int, x: Tensor) -> None:
        """The same for attention under that score, where all layers share what it is made into.

        A layer that made it would have to be the one that makes it again when layers are
        recomputed, and compiled graphs would differ between that layer and the others.
        """

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        *,
        scale: float,
        score: Score | None = None,
        softcap: float | None = None,
        sink_logit: Float[Tensor, "h"] | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "b h t v"]:
        """softmax(cap(q k^T scale) + score | mask) v; query head i reads key head i // (h / g).

        `sink_logit` adds exp(sink_logit) to each head's denominator: a key that every query sees
        and whose value is zero. A query that may see no key yields zeros.
        """
        raise NotImplementedError


backend = Slot("model.backend", Backend, doc="The kernel that computes softmax attention.")
