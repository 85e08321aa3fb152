"""The slot of objectives: what a step's batch is trained towards."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from txlab.core.config import Component
from txlab.core.slot import Slot
from txlab.data.batch import Batch
from txlab.nn.auxiliary import Aux


@dataclass(frozen=True)
class Loss:
    """A sum over supervised items and their number; the division is the caller's, once a step."""

    sum: Tensor
    """The loss summed over the supervised items of the batch; has the graph."""
    count: Tensor
    """Number of supervised items."""
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Further figures, each as (sum, count), without graph."""
    loads: tuple[Tensor, ...] = ()
    """`Aux.loads`: summed over a step, they move the balancing biases of the model."""

    def plus(self, aux: Aux) -> "Loss":
        """This with the model's auxiliary losses, once for every item, and their figures."""
        total, metrics = self.sum, dict(self.metrics)
        for name, value in aux.losses.items():
            total = total + value * self.count
            metrics[name] = (value.detach() * self.count, self.count)
        return Loss(total, self.count, metrics | aux.figures, aux.loads)


class Objective(nn.Module):
    """Turns a model and a batch into a loss: `forward(model, batch) -> Loss`.

    Networks that an objective owns are its submodules and move with it; `Frozen` holds those that
    do not train. The model that is trained is none of them.
    """

    @dataclass
    class Config(Component):
        """Fields shared by all objectives."""

    needs: ClassVar[tuple[str, ...]] = ("tokens", "labels")
    """Keys of the batch that it reads."""
    additive: ClassVar[bool] = True
    """Whether losses of micro-batches add up to the loss of the whole; else a step stays whole."""

    item: ClassVar[str] = "token"
    """What its losses are counted by."""
    lines: ClassVar[int] = 1
    """Rows of a batch that make up one item: 2 where chosen and rejected stand in turn."""
    shifted: ClassVar[bool] = True
    """Whether a label is the token after its place (`Data.shifted`)."""
    generates: ClassVar[bool] = False
    """Whether it has the model make the answers that it learns from, so that it needs no labels."""
    needs_start: ClassVar[bool] = False
    """Whether `bind` must be given the model as it started, also where a run is resumed."""

    def __init__(self, config: Config) -> None:
        super().__init__()

    def bind(self, model: nn.Module) -> None:
        """Called once with the model as it starts: weights and adapter in, nothing trained."""

    def count(self, batch: Batch) -> Tensor:
        """Number of supervised items in `batch`, known without running the model."""
        raise NotImplementedError

    def forward(self, model: Any, batch: Batch) -> Loss:
        raise NotImplementedError

    if TYPE_CHECKING:  # nn.Module's own says nothing of its arguments

        def __call__(self, model: Any, batch: Batch) -> Loss: ...


objective = Slot("objective", Objective, doc="What the model is trained for.")
