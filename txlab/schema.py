"""The typed root config: the closed list of slots, and what a run needs beside them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from txlab.core.errors import RequestError
from txlab.data.source import Data
from txlab.data.text import Text
from txlab.data.tokenizer import BPE, Tokenizer
from txlab.models import Decoder, Model
from txlab.nn.adapter import Adapter, NoAdapter
from txlab.objectives import NextToken, Objective
from txlab.train.config import Train
from txlab.train.optim import AdamW, Optim
from txlab.train.schedule import Cosine, Schedule


class Goal(StrEnum):
    """Which way a figure is better."""

    minimize = "minimize"
    maximize = "maximize"


@dataclass
class Sweep:
    """By what the runs of a sweep are compared; no run depends on it."""

    metric: str = "val/loss"
    """Figure of a run's summary, such as val/exact_match; what a sweeper that searches is told."""
    goal: Goal = Goal.minimize
    """Whether less of it is better."""


@dataclass
class Config:
    """Everything a run is made of. `txlab.compose(overrides)` makes one."""

    seed: int = 0
    """Seed of initialisation, dropout and the order of the data."""
    run_dir: str | None = None
    """Folder of the run; None: a fresh one under runs/."""
    resume: str | None = None
    """A checkpoint or run to continue; auto: the newest complete checkpoint of run_dir, if any."""
    ckpt: str | None = None
    """A run or checkpoint to work with: generate, evaluate, export."""
    plugins: list[str] = field(default_factory=list)
    """Modules to import first; their options are then known."""
    model: Model.Config = field(default_factory=lambda: Decoder.Config())
    """The network."""
    adapter: Adapter.Config = field(default_factory=lambda: NoAdapter.Config())
    """What trains in place of the network's own weights."""
    tokenizer: Tokenizer.Config = field(default_factory=lambda: BPE.Config())
    """Text to ids."""
    data: Data.Config = field(default_factory=lambda: Text.Config())
    """What is trained on."""
    objective: Objective.Config = field(default_factory=lambda: NextToken.Config())
    """What is trained for."""
    optim: Optim.Config = field(default_factory=lambda: AdamW.Config())
    """How weights move."""
    schedule: Schedule.Config = field(default_factory=lambda: Cosine.Config())
    """How the learning rate changes."""
    train: Train = field(default_factory=Train)
    """How long, how exact, how often."""
    sweep: Sweep = field(default_factory=Sweep)
    """With -m: by what runs are compared."""
    trainer: dict[str, Any] | None = field(
        default_factory=lambda: {"accelerator": "auto", "devices": 1}
    )
    """Arguments of Lightning's Trainer that txlab does not set itself."""
    logger: dict[str, Any] | None = field(default_factory=dict)
    """Loggers beside the local log: name to `_target_` and its arguments."""
    callbacks: dict[str, Any] | None = field(default_factory=dict)
    """Lightning callbacks: name to `_target_` and its arguments."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise RequestError(f"seed={self.seed}: expected 0 <= seed < 4294967296.")
