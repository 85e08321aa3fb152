"""Rotary frequencies for texts longer than the model was trained on.

Every scheme gives one set of frequencies for the whole model, whatever the input: only so are a
cached key, a packed document and a row of a batch turned as they are alone.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from txlab.core.errors import RequestError
from txlab.nn.position.position import Position
from txlab.nn.position.turn import inverse_frequencies


class Scaling(StrEnum):
    """How rotary frequencies are stretched."""

    none = "none"
    """As trained."""
    linear = "linear"
    """All divided by `factor` (Chen et al. 2023): positions are squeezed together."""
    ntk = "ntk"
    """theta times factor^(c / (c - 2)): the slowest pair is divided by `factor`, the fastest stays
    (NTK-aware, bloc97 2023)."""
    dynamic = "dynamic"
    """ntk as far as `context` needs it, factor * context / original_context - (factor - 1). The
    authors follow each input's length; cached keys and packed documents have no single one."""
    yarn = "yarn"
    """linear for slow pairs, none for fast ones, a ramp between; scores sharpened by the attention
    factor (Peng et al. 2023)."""
    llama3 = "llama3"
    """linear for wavelengths above original_context / low_freq_factor, none below original_context
    / high_freq_factor, smooth between (Llama 3.1, 2024)."""
    longrope = "longrope"
    """Each pair divided by its own factor: of `long_factors` where `context` is longer than
    `original_context`, else of `short_factors` (Ding et al. 2024)."""


NEEDS: dict[Scaling, tuple[str, ...]] = {
    Scaling.none: (),
    Scaling.linear: ("factor",),
    Scaling.ntk: ("factor",),
    Scaling.dynamic: ("factor", "original_context"),
    Scaling.yarn: ("factor",),
    Scaling.llama3: ("factor",),
    Scaling.longrope: ("original_context", "short_factors", "long_factors"),
}
"""Fields that a scheme cannot do without."""
MAY: dict[Scaling, tuple[str, ...]] = {
    Scaling.yarn: (
        *("original_context", "beta_fast", "beta_slow"),
        *("attention_factor", "mscale", "mscale_all_dim"),
    ),
    Scaling.llama3: ("original_context", "low_freq_factor", "high_freq_factor"),
    Scaling.longrope: ("factor", "attention_factor"),
}
"""Fields that it also reads; all others are refused with it."""


@dataclass
class Frequencies(Position.Config):
    """Fields of rotary frequencies and their scaling."""

    theta: float = 10000.0
    """Base of the frequencies; a larger one turns slower and reaches farther."""
    scaling: Scaling = Scaling.none
    """How frequencies are stretched for texts longer than those trained on."""
    factor: float | None = None
    """How many times longer the texts are (linear, ntk, dynamic, yarn, llama3; longrope: None is
    context / original_context)."""
    original_context: int | None = None
    """Length in tokens before scaling (yarn, llama3: None is model.context; dynamic, longrope)."""
    attention_factor: float | None = None
    """Multiplies turned queries and keys (yarn: None is 0.1 ln(factor) + 1; longrope: None is
    sqrt(1 + ln(factor) / ln(original_context)))."""
    mscale: float | None = None
    """yarn: with mscale_all_dim, attention_factor is (0.1 mscale ln(factor) + 1) over the same of
    mscale_all_dim (DeepSeek-V2)."""
    mscale_all_dim: float | None = None
    """yarn: see mscale. model.attn=mla multiplies its scores by the square of that as well."""
    beta_fast: float | None = None
    """yarn: pairs that turn more often than this within original_context stay; None is 32."""
    beta_slow: float | None = None
    """yarn: pairs that turn less often than this are divided by factor; None is 1."""
    low_freq_factor: float | None = None
    """llama3: wavelengths above original_context over this are multiplied by factor; None is 1."""
    high_freq_factor: float | None = None
    """llama3: wavelengths below original_context over this stay; None is 4."""
    short_factors: list[float] = field(default_factory=list)
    """longrope: a divisor for each pair of channels, for contexts up to original_context."""
    long_factors: list[float] = field(default_factory=list)
    """longrope: a divisor for each pair of channels, for contexts beyond original_context."""

    def __post_init__(self) -> None:
        self.require(self.theta > 0, "theta", "a number above 0")
        scaling = Scaling(self.scaling)
        known = {name for names in (*NEEDS.values(), *MAY.values()) for name in names}
        given = {name for name in known if getattr(self, name) not in (None, [])}
        for name in sorted(given):
            value = getattr(self, name)
            positive = all(v > 0 for v in value) if isinstance(value, list) else value > 0
            self.require(positive, name, "above 0")
            fits = [s for s in Scaling if name in (*NEEDS[s], *MAY.get(s, ()))]
            self.require(scaling in fits, name, f"unset, or scaling={' or '.join(fits)}")
        for name in NEEDS[scaling]:
            self.require(name in given, name, f"a value, which scaling={scaling} needs")
        if scaling is Scaling.none:
            return
        self.require(self.theta > 1, "theta", f"more than 1 with scaling={scaling}")
        self.require(self.factor is None or self.factor >= 1, "factor", "1 or more")
        fast, slow = self.beta_fast or 32, self.beta_slow or 1
        self.require(fast > slow, "beta_fast", f"more than beta_slow={slow:g}")
        high, low = self.high_freq_factor or 4, self.low_freq_factor or 1
        self.require(high > low, "high_freq_factor", f"more than low_freq_factor={low:g}")
        both = (self.mscale is None) == (self.mscale_all_dim is None)
        self.require(both, "mscale", "mscale_all_dim with it, or neither")


def check(config: Frequencies, channels: int, context: int) -> None:
    """RequestError where the scaling has no meaning at this size."""
    scaling, original = config.scaling, config.original_context or context
    where = f"model.pos.scaling={scaling}"
    if scaling in (Scaling.ntk, Scaling.dynamic) and channels < 4:
        raise RequestError(f"{where} needs 4 channels that turn, and there are {channels}.")
    if scaling is Scaling.dynamic and context <= original:
        raise RequestError(
            f"{where} changes nothing while model.context={context} is not above "
            f"original_context={original}: raise model.context, or set scaling=none."
        )
    if scaling is Scaling.longrope:
        for name in ("short_factors", "long_factors"):
            n = len(getattr(config, name))
            if n != channels // 2:
                raise RequestError(
                    f"{where}: {name} has {n} numbers, and {channels // 2} pairs of channels turn."
                )


def scaled_frequencies(
    config: Frequencies, channels: int, context: int, device: torch.device
) -> Float[Tensor, " f"]:
    """Radians per token of each pair of channels, in float32: theta^(-2i / channels), scaled."""
    original = config.original_context or context
    factor, theta = config.factor or 1.0, config.theta
    stretch = channels / (channels - 2) if channels > 2 else 1.0
    match config.scaling:
        case Scaling.linear:
            return inverse_frequencies(channels, theta, device) / factor
        case Scaling.ntk:
            return inverse_frequencies(channels, theta * factor**stretch, device)
        case Scaling.dynamic:
            times = factor * context / original - (factor - 1)
            return inverse_frequencies(channels, theta * times**stretch, device)
        case Scaling.yarn:
            return _yarn(inverse_frequencies(channels, theta, device), config, channels, original)
        case Scaling.llama3:
            return _llama3(inverse_frequencies(channels, theta, device), config, original)
        case Scaling.longrope:
            divisors = config.long_factors if context > original else config.short_factors
            return inverse_frequencies(channels, theta, device) / torch.tensor(
                divisors, device=device
            )
        case _:
            return inverse_frequencies(channels, theta, device)


def attention_factor(config: Frequencies, context: int) -> float:
    """What turned queries and keys are multiplied by: 1 but for yarn and longrope."""
    if config.attention_factor is not None:
        return config.attention_factor
    if config.scaling is Scaling.yarn:
        log = 0.1 * math.log(config.factor or 1.0)
        if config.mscale is not None and config.mscale_all_dim is not None:
            return (log * config.mscale + 1) / (log * config.mscale_all_dim + 1)
        return log + 1
    if config.scaling is Scaling.longrope:
        original = config.original_context or context
        factor = max(config.factor or context / original, 1.0)
        return math.sqrt(1 + math.log(factor) / math.log(original))
    return 1.0


def _yarn(
    frequencies: Float[Tensor, " f"], config: Frequencies, channels: int, original: int
) -> Float[Tensor, " f"]:
    def pair(turns: float) -> float:
        """The pair, counted in fractions, that turns so often within the original context."""
        return channels * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    first = max(math.floor(pair(config.beta_fast or 32)), 0)
    last = min(math.ceil(pair(config.beta_slow or 1)), channels - 1)
    pairs = torch.arange(len(frequencies), dtype=torch.float32, device=frequencies.device)
    slow = ((pairs - first) / max(last - first, 1e-3)).clamp(0, 1)
    return frequencies / (config.factor or 1.0) * slow + frequencies * (1 - slow)


def _llama3(
    frequencies: Float[Tensor, " f"], config: Frequencies, original: int
) -> Float[Tensor, " f"]:
    low, high = config.low_freq_factor or 1.0, config.high_freq_factor or 4.0
    turns = original * frequencies / (2 * math.pi)  # within the original context
    fast = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies / (config.factor or 1.0) * (1 - fast) + frequencies * fast
