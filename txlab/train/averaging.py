"""Averaged weights: a model may be evaluated and saved with other weights than it trains with.

Two things make an average: `EMA`, and optimizers that keep one themselves, told by their method
`averaged()`. Whoever evaluates does so inside `Averaging.evaluated`; who saves asks `to_save`.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from txlab.core.errors import RequestError
from txlab.train.config import Train
from txlab.train.masters import Masters
from txlab.train.state import optimizer_names
from txlab.train.strategy.shards import all_whole, leads, like

Pairs = list[tuple[nn.Parameter, Tensor]]


class Source(Protocol):
    """What has averages of parameters that an optimizer moves."""

    def averaged(self) -> Pairs:
        """(parameter, its average); the parameters are not touched."""
        ...


class EMA:
    """Exponential moving average of the weights (Polyak and Juditsky 1992; as in Kingma and Ba
    2014, section 7.2): after every `every`-th update `shadow += (1 - decay) * (weight - shadow)`.

    With `warmup` the n-th decay is at most (1 + n) / (10 + n), so that the start is soon forgotten.
    """

    def __init__(
        self, optimizer: Optimizer, decay: float, *, every: int = 1, warmup: bool = True
    ) -> None:
        self.optimizer = optimizer
        self.decay, self.every, self.warmup = decay, every, warmup
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.shadows = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the weights as they are after update number `updates`, from 1."""
        if updates % self.every:
            return
        n = updates // self.every
        decay = min(self.decay, (1 + n) / (10 + n)) if self.warmup else self.decay
        meshes: dict[Any, list[int]] = {}  # tensors of different ones do not mix
        for i, shadow in enumerate(self.shadows):
            meshes.setdefault(getattr(shadow, "device_mesh", None), []).append(i)
        for places in meshes.values():
            shadows = [self.shadows[i] for i in places]
            weights = [self.parameters[i].detach() for i in places]
            torch._foreach_lerp_(shadows, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    def averaged(self) -> Pairs:
        return list(zip(self.parameters, self.shadows, strict=True))


class Averaging:
    """What the model is evaluated and saved with; without a source, the weights that it trains."""

    def __init__(
        self, model: nn.Module, source: Source | None = None, masters: Masters | None = None
    ) -> None:
        self._model, self._source = model, source
        pairs = [] if masters is None else masters.pairs
        self._rounded = {master: parameter for parameter, master in pairs}

    @property
    def averages(self) -> bool:
        """Whether there is an average."""
        return self._source is not None

    @contextlib.contextmanager
    def evaluated(self) -> Iterator[None]:
        """The model has its averaged weights inside of this; outside, bit for bit its own."""
        pairs = [(self._in_model(p), average) for p, average in self._averaged()]
        kept = [parameter.detach().clone() for parameter, _ in pairs]
        self._set([(p, average) for p, average in pairs])
        try:
            yield
        finally:
            self._set([(p, value) for (p, _), value in zip(pairs, kept, strict=True)])

    def to_save(self) -> dict[Tensor, Tensor]:
        """By parameter of the model, the values to save in place of its own: averages, masters."""
        exact: dict[Tensor, Tensor] = {p: master for master, p in self._rounded.items()}
        return exact | {self._in_model(p): average for p, average in self._averaged()}

    def training(self) -> dict[str, Tensor]:
        """By name, the values to go on from, where an average is saved as the weights; all ranks
        ask, the first one gets them."""
        if self._source is None:
            return {}
        source: Any = self._source
        return all_whole(named(getattr(source, "optimizer", source)), keep=leads())

    def update(self, updates: int) -> None:
        """Take in the weights after update number `updates`; optimizers do so by themselves."""
        if isinstance(self._source, EMA):
            self._source.update(updates)

    def _averaged(self) -> Pairs:
        return [] if self._source is None else self._source.averaged()

    def _in_model(self, parameter: nn.Parameter) -> nn.Parameter:
        return self._rounded.get(parameter, parameter)

    @torch.no_grad()
    def _set(self, pairs: list[tuple[nn.Parameter, Tensor]]) -> None:
        for part in self._model.modules() if pairs else ():
            if isinstance(part, FSDPModule):
                part.reshard()  # else what it has gathered before would be used again
        for parameter, value in pairs:
            parameter.copy_(value)


def refuse_two(optimizer: Optimizer, ema: float | None) -> None:
    """RequestError where a run would have two averages."""
    if ema is not None and hasattr(optimizer, "averaged"):
        raise RequestError(
            f"train.ema={ema}: this optimizer keeps an average of its own, which is what is "
            "evaluated and saved: leave train.ema out."
        )


def source_of(optimizer: Any, train: Train, averages: Mapping[str, Tensor]) -> Source | None:
    """What has the averages of a run, if anything; `averages`: those that it is resumed with."""
    if train.ema is None:
        return optimizer if hasattr(optimizer, "averaged") else None
    ema = EMA(optimizer, train.ema, every=train.ema_every, warmup=train.ema_warmup)
    if averages:
        for name, shadow in zip(optimizer_names(optimizer), ema.shadows, strict=True):
            shadow.copy_(like(averages[name], shadow))
    return ema


def named(optimizer: Optimizer) -> dict[str, Tensor]:
    """The values of an optimizer's parameters by name."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return {n: p.detach() for n, p in zip(optimizer_names(optimizer), parameters, strict=True)}


@torch.no_grad()
def exchanged(optimizer: Optimizer, training: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the parameters their values in `training`; those that they had, by name."""
    found: dict[str, Tensor] = {}
    for name, value in named(optimizer).items():
        found[name] = value.clone()
        value.copy_(training[name])
    return found
