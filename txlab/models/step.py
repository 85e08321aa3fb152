"""One decoding step, as it is and compiled: a token of each row in, the next one out."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from txlab.models.model import Model
from txlab.models.sampling import Sampling, draw, penalise
from txlab.nn.cache import Cache

Chosen = tuple[Int[Tensor, "b"], Float[Tensor, "b"]]
"""The tokens, and their log-probabilities under the model itself (temperature 1, nothing cut)."""
Step = Callable[[Int[Tensor, "b 1"], Cache, "Chooser", Float[Tensor, "b"], bool], Chosen]
"""(tokens, cache, chooser, uniform numbers, whether end tokens are kept off) -> the next tokens."""


class Chooser:
    """Draws the next tokens from logits; remembers what each row has seen where that counts."""

    def __init__(
        self,
        sampling: Sampling,
        tokens: Int[Tensor, "b t"],
        valid: Bool[Tensor, "b t"],
        vocab_size: int,
        *,
        forbidden: Sequence[int],
        end_ids: Sequence[int],
    ) -> None:
        self.sampling = sampling
        self.never = _ids(forbidden, tokens.device)
        self.ends = _ids(end_ids, tokens.device)
        self.seen: Bool[Tensor, "b v+1"] | None = None
        if sampling.repetition_penalty != 1:
            self.seen = torch.zeros(len(tokens), vocab_size + 1, dtype=torch.bool).to(tokens.device)
            # Padding goes to a column of its own, so that it never counts as seen.
            self.seen.scatter_(1, tokens.where(valid, vocab_size), True)

    def choose(
        self, logits: Float[Tensor, "b v"], uniform: Float[Tensor, "b"], early: bool
    ) -> Chosen:
        """One token a row; `early`: no end token yet."""
        logits = scores = logits.float()
        if self.seen is not None:
            scores = penalise(scores, self.seen[:, :-1], self.sampling.repetition_penalty)
        if self.never is not None:
            scores = scores.index_fill(1, self.never, float("-inf"))
        if early and self.ends is not None:
            scores = scores.index_fill(1, self.ends, float("-inf"))
        chosen = draw(scores, self.sampling, uniform)[:, None]
        if self.seen is not None:
            self.seen.scatter_(1, chosen, True)
        logprobs = logits.gather(1, chosen) - logits.logsumexp(-1, keepdim=True)
        return chosen[:, 0], logprobs[:, 0]

    def reorder(self, rows: Int[Tensor, "n"]) -> None:
        """Keep `rows` of the batch, in this order."""
        if self.seen is not None:
            self.seen = self.seen[rows]


def next_tokens(
    model: Model,
    tokens: Int[Tensor, "b 1"],
    cache: Cache,
    chooser: Chooser,
    uniform: Float[Tensor, "b"],
    early: bool,
) -> Chosen:
    """The tokens that follow `tokens`."""
    logits = model.logits(model(tokens, cache=cache).states[:, -1])
    return chooser.choose(logits, uniform, early)


def decoding_step(model: Model, *, compiled: bool) -> Step:
    """`next_tokens` of a model; compiled: as one graph, on a CPU called from C++."""
    if not compiled:
        return functools.partial(next_tokens, model)
    options: dict[str, Any] | None = {"cpp_wrapper": True} if model.device.type == "cpu" else None
    return functools.partial(torch.compile(next_tokens, dynamic=False, options=options), model)


def _ids(ids: Sequence[int], device: torch.device) -> Int[Tensor, "n"] | None:
    found = sorted(set(ids))
    return torch.tensor(found, dtype=torch.long, device=device) if found else None
