"""Direct preference optimization, and identity preference optimization."""

from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from txlab.objectives.objective import objective
from txlab.objectives.preference import Preference


def dpo_loss(margin: Float[Tensor, " p"], *, label_smoothing: float = 0.0) -> Float[Tensor, " p"]:
    """-log sigmoid(margin) of each pair (Rafailov et al. 2023, equation 7).

    `margin` is the reward of the chosen answer minus that of the rejected one. With smoothing s the
    pair is taken to be labelled the wrong way round with probability s (Mitchell 2023, cDPO):
    -(1 - s) log sigmoid(margin) - s log sigmoid(-margin).
    """
    smooth = label_smoothing
    return -(1 - smooth) * F.logsigmoid(margin) - smooth * F.logsigmoid(-margin)


def ipo_loss(margin: Float[Tensor, " p"], *, beta: float) -> Float[Tensor, " p"]:
    """(margin / beta - 1 / (2 beta))^2 of each pair (Azar et al. 2023, equation 17).

    `margin` is the reward of the chosen answer minus that of the rejected one, so margin / beta is
    the difference of their log-ratios to the reference: it is drawn to 1 / (2 beta), not beyond.
    """
    return (margin / beta - 1 / (2 * beta)) ** 2


@objective("dpo")
class DPO(Preference):
    """Prefers chosen answers to rejected ones, against a reference (Rafailov et al. 2023).

    The reward of an answer is beta times (log p(model) - log p(reference)), summed over its tokens;
    the first loss is ln 2 exactly.
    """

    @dataclass
    class Config(Preference.Config):
        """Fields of direct preference optimization."""

        label_smoothing: float = 0.0
        """Share of pairs that are taken to be labelled the wrong way round, below 0.5."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(0 <= self.label_smoothing < 0.5, "label_smoothing", "0 or more, below 0.5")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.label_smoothing = config.label_smoothing

    def losses(self, margin: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        return dpo_loss(margin, label_smoothing=self.label_smoothing)


class Average(StrEnum):
    """What the log-probabilities of an answer's tokens are put together by."""

    mean = "mean"
    sum = "sum"


@objective("ipo")
class IPO(Preference):
    """Prefers chosen answers up to a margin, against a reference (Azar et al. 2023).

    The squared distance of the log-ratios' difference to 1 / (2 beta): it stops pulling once a pair
    is that far apart, where DPO goes on. Log-probabilities are means over an answer's tokens, so
    that long answers need no larger margin (`average=sum`: the paper's letter). First loss
    1 / (4 beta^2).
    """

    @dataclass
    class Config(Preference.Config):
        """Fields of identity preference optimization."""

        average: Average = Average.mean
        """mean: over an answer's tokens, whatever its length; sum: of all of them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.mean = config.average is Average.mean

    def losses(self, margin: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        return ipo_loss(margin, beta=self.beta)
