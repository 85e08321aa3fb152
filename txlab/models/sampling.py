"""From logits to the next token: penalties, temperature, top-k, top-p, and the draw itself."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from txlab.core.errors import RequestError


@dataclass
class Sampling:
    """How tokens are chosen and when a row ends."""

    max_new_tokens: int = 128
    """New tokens a row gets at most; the prompt does not count."""
    min_new_tokens: int = 0
    """New tokens a row gets at least: no end token is drawn before, no stop text ends it."""
    temperature: float = 1.0
    """Divides the logits; 0 takes the likeliest token."""
    top_k: int | None = None
    """Keep the k likeliest tokens."""
    top_p: float | None = None
    """Keep the likeliest tokens that together reach this probability (Holtzman et al. 2020)."""
    repetition_penalty: float = 1.0
    """Lowers tokens that prompt or answer contain already (Keskar et al. 2019); 1: off."""
    stop: list[str] = field(default_factory=list)
    """Texts that end a row; they are not part of its answer."""
    n: int = 1
    """Answers a prompt gets."""
    seed: int = 0
    """Row i draws from a stream of its own that starts from seed + i, whatever its batch mates."""

    def __post_init__(self) -> None:
        checks = {
            "max_new_tokens": (self.max_new_tokens >= 1, "at least 1"),
            "min_new_tokens": (
                0 <= self.min_new_tokens <= self.max_new_tokens,
                "0 to max_new_tokens",
            ),
            "temperature": (0 <= self.temperature < float("inf"), "0 or more"),
            "top_k": (self.top_k is None or self.top_k >= 1, "at least 1, or null"),
            "top_p": (self.top_p is None or 0 < self.top_p <= 1, "above 0 and up to 1, or null"),
            "repetition_penalty": (0 < self.repetition_penalty < float("inf"), "above 0"),
            "stop": (all(self.stop), "no empty text"),
            "n": (self.n >= 1, "at least 1"),
            "seed": (abs(self.seed) < 2**62, "a number below 2^62"),
        }
        for key, (good, expected) in checks.items():
            if not good:
                raise RequestError(f"{key}={getattr(self, key)}: expected {expected}.")


def penalise(
    logits: Float[Tensor, "b v"], seen: Bool[Tensor, "b v"], penalty: float
) -> Float[Tensor, "b v"]:
    """Logits of `seen` tokens lowered: positive ones divided, negative ones multiplied."""
    lowered = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, lowered, logits)


def keep_top(
    logits: Float[Tensor, "b v"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "b v"]:
    """Logits with all but the kept tokens at -inf; the likeliest token is always kept."""
    if top_k is not None and top_k < logits.shape[-1]:
        # By rank, not by value: ties at the border would keep more than k.
        kept = logits.topk(top_k, dim=-1)
        logits = torch.full_like(logits, float("-inf")).scatter(-1, kept.indices, kept.values)
    if top_p is not None and top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        share = ordered.softmax(-1)
        before = share.cumsum(-1) - share
        ordered = ordered.masked_fill(before >= top_p, float("-inf"))
        logits = torch.empty_like(logits).scatter(-1, order, ordered)
    return logits


def draw(
    logits: Float[Tensor, "b v"], sampling: Sampling, uniform: Float[Tensor, "b"]
) -> Int[Tensor, "b"]:
    """One token a row, by the inverse distribution function at `uniform` (0 <= u < 1)."""
    if sampling.temperature == 0:
        # The first of the largest, like argmax, which takes three times as long on a CPU.
        return logits.max(-1).indices
    # From the largest down: however small the temperature, that one stays 0 and none becomes inf.
    below = logits.float() - logits.float().amax(-1, keepdim=True)
    tempered = below / max(sampling.temperature, 1e-30)
    kept = keep_top(tempered, sampling.top_k, sampling.top_p)
    reached = kept.softmax(-1).cumsum(-1)
    # Relative to the total, which rounding leaves a little off 1; the first index above u has
    # positive probability.
    return (reached > uniform[:, None] * reached[:, -1:]).to(torch.uint8).argmax(-1)
