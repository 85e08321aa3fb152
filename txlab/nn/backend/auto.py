"""The fastest backend that computes what is asked for."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from txlab.core.config import Dims
from txlab.core.errors import RequestError
from txlab.nn.backend.backend import Backend, backend
from txlab.nn.backend.banded import Banded
from txlab.nn.backend.bands import bands
from txlab.nn.mask import Mask, Score

FASTEST_FIRST = ("sdpa", "flash", "math")
LONG = 512
"""Queries from which a cut into runs pays: below, calls cost as much as pairs (CPU figures)."""
SPARSE = 0.8
"""Share of the pairs that a cut may leave for it to pay; a causal mask leaves 0.75 of 512."""


@backend("auto")
class Auto(Backend):
    """Picks the fastest backend for each layer and mask; never changes results."""

    @dataclass
    class Config(Backend.Config):
        """No fields: the choice follows from what the attention asks for and what it sees."""

    supports = frozenset({"softcap", "score", "sink_logit", "dropout", "fused"})

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.dims = dims
        self._picked: dict[frozenset[str], Backend] = {}

    def pick(self, features: frozenset[str]) -> Backend:
        if features not in self._picked:
            self._picked[features] = self._pick(features)
        return self._picked[features]

    def _pick(self, features: frozenset[str]) -> Backend:
        for name in FASTEST_FIRST:
            option = backend.option(name)
            if features <= option.cls.supports:
                usual = backend.build(option.config(), self.dims)
                runs = backend.build(backend.config("banded"), self.dims)
                assert isinstance(runs, Banded)
                return ByMask(usual, runs) if features <= runs.supports else usual
        raise RequestError(
            f"model.backend={self.name}: no backend computes {', '.join(sorted(features))}."
        )


class ByMask(Backend):
    """The usual backend, but `banded` where most of a long row stays unseen."""

    def __init__(self, usual: Backend, runs: Banded) -> None:
        self.name = f"{usual.name} or {runs.name}"
        self.usual, self.runs = usual, runs

    def choose(self, mask: Mask, *, scored: bool) -> Backend:
        """The faster of the two for this mask."""
        if mask.n_queries < LONG:
            return self.usual
        if mask.plain is not None and not scored and self.usual.name == "sdpa":
            return self.usual
        cut = bands(mask, self.runs.run)
        return self.usual if cut is None or cut.share > SPARSE else self.runs

    def prepare(self, mask: Mask, x: Tensor) -> None:
        self.choose(mask, scored=False).prepare(mask, x)

    def prepare_score(self, mask: Mask, score: Score, n_heads: int, x: Tensor) -> None:
        chosen = self.choose(mask, scored=True)
        chosen.prepare(mask, x)
        chosen.prepare_score(mask, score, n_heads, x)

    def attend(
        self,
        q: Float[Tensor, "b h t k"],
        k: Float[Tensor, "b g s k"],
        v: Float[Tensor, "b g s v"],
        mask: Mask,
        **how: Any,
    ) -> Float[Tensor, "b h t v"]:
        chosen = self.choose(mask, scored=how.get("score") is not None)
        return chosen.attend(q, k, v, mask, **how)
