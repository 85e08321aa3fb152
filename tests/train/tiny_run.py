"""Tiny runs: a real decoder, random rows, the real module and callbacks."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from txlab.data.batch import IGNORE, Batch
from txlab.models.decoder import Decoder
from txlab.objectives.next_token import NextToken
from txlab.objectives.objective import Loss, Objective
from txlab.train.callbacks import Checkpoints, Log
from txlab.train.checkpoint import Keep
from txlab.train.config import Train
from txlab.train.module import TrainModule
from txlab.train.optim import AdamW
from txlab.train.optim import optim as optim_slot
from txlab.train.resume import restore
from txlab.train.schedule import Cosine
from txlab.train.schedule import schedule as schedule_slot
from txlab.train.state import seed_everything

VOCAB, CONTEXT = 17, 8


def decoder(**fields: Any) -> Decoder:
    config = Decoder.Config(
        dim=16, n_layers=2, n_heads=2, context=CONTEXT, vocab_size=VOCAB, **fields
    )
    return Decoder(config, config.dims())


def unsealed(folder: Path) -> None:
    """Take sizes and sums out of a checkpoint's mark: as one from before there were any."""
    mark = folder / "COMPLETE"
    notes = {k: v for k, v in json.loads(mark.read_text()).items() if k not in ("bytes", "sha256")}
    mark.write_text(json.dumps(notes))


def rows_of(step: int, rows: int = 4) -> Batch:
    """The rows of a step, a pure function of its number; some positions are not supervised."""
    stream = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(VOCAB, (rows, CONTEXT + 1), generator=stream)
    labels = tokens[:, 1:].clone()
    labels[torch.rand(rows, CONTEXT, generator=stream) < 0.3] = IGNORE
    return {"tokens": tokens[:, :-1].contiguous(), "labels": labels}


def split(batch: Batch, *sizes: int) -> list[Batch]:
    parts = {key: torch.split(value, list(sizes)) for key, value in batch.items()}
    return [{key: part[i] for key, part in parts.items()} for i in range(len(sizes))]  # pyright: ignore


class Poison(Objective):
    """Next-token prediction whose gradient is infinite at one step."""

    def __init__(self, at):
        super().__init__(Objective.Config())
        self.inner, self.at, self.calls = NextToken(NextToken.Config()), at, 0

    def count(self, batch):
        return self.inner.count(batch)

    def forward(self, model, batch):
        loss = self.inner(model, batch)
        if not model.training:
            return loss
        self.calls += 1
        factor = math.inf if self.calls in self.at else 1.0
        return Loss(loss.sum * factor, loss.count, loss.metrics, loss.loads)


class Given(Objective):
    """NLLs that the batch states itself, times a weight that is 1."""

    item = "number"

    def __init__(self):
        super().__init__(Objective.Config())

    def count(self, batch):
        return torch.tensor(len(batch["nll"]))

    def forward(self, model, batch):
        with torch.autocast("cpu", enabled=False):
            one = model(torch.ones(1))
        return Loss((batch["nll"] * one).sum(), self.count(batch))


def given_nll(n: int, nll: float) -> Any:
    """A micro-batch of `n` targets of that NLL each."""
    return {"nll": torch.full((n,), nll), "tokens": torch.zeros(n)}


def weight_one() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


class Steps(torch.utils.data.IterableDataset[list[Batch]]):
    def __init__(self, start: int, end: int, make: Any) -> None:
        self.start, self.end, self.make = start, end, make

    def __iter__(self) -> Any:
        return iter(self.make(step) for step in range(self.start, self.end))

    def __len__(self) -> int:
        return self.end - self.start


class Recorder(Log):
    """The log, with each row's figures also in memory, and weights where asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows: list[dict[str, float]] = []

    def on_row(self, trainer: Any, module: Any, row: dict[str, float]) -> None:
        super().on_row(trainer, module, row)
        self.rows.append(dict(row))

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.rows if name in row]


class Run:
    """A run of `steps` steps; call `fit`, perhaps after `resume`."""

    def __init__(
        self,
        folder: Path,
        steps: int = 4,
        *,
        make: Any = None,
        model: Any = None,
        optim: Any = None,
        schedule: Any = None,
        objective: Any = None,
        seed: int = 0,
        resume: Any = None,
        callbacks: tuple[Any, ...] = (),
        val: int = 2,
        trainer: dict[str, Any] | None = None,
        dropout: float = 0.0,
        **train: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seed_everything(seed)
        self.folder = folder
        self.steps = steps
        self.make = make or (lambda step: [rows_of(step)])
        self.train = Train(**{"log_every": 1, **train})
        self.val = val
        self.extra = trainer or {}
        make_optimizer = optim_slot.build(optim or AdamW.Config()).make
        self.module = TrainModule(
            model or decoder(dropout=dropout),
            objective or NextToken(NextToken.Config()),
            make_optimizer=make_optimizer,
            schedule=schedule_slot.build(schedule or Cosine.Config(), total_steps=steps),
            train=self.train,
            total_steps=steps,
            seed=seed,
            token_bytes=torch.arange(VOCAB),
            validates=val > 0,
        )
        if resume is not None:
            restore(resume, self.module)
        start = self.module.counters.step
        self.log = Recorder(folder, resumed_step=start)
        self.checkpoints = Checkpoints(
            folder,
            config="name: tiny\n",
            save_every=self.train.save_every,
            keep=Keep(self.train.keep_last),
            resumed_step=start if resume is not None else -1,
        )
        self.callbacks = [self.log, *callbacks, self.checkpoints]

    def fit(self) -> "Run":
        from lightning.pytorch import Trainer

        start = self.module.counters.step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = Trainer(
                **{
                    "accelerator": "cpu",
                    "max_epochs": 1,
                    "logger": False,
                    "enable_checkpointing": False,
                    "enable_progress_bar": False,
                    "enable_model_summary": False,
                    "num_sanity_val_steps": 0,
                    "check_val_every_n_epoch": None,
                    "val_check_interval": 1,
                    "use_distributed_sampler": False,
                    "precision": self.train.precision,
                    "callbacks": self.callbacks,
                    **self.extra,
                }
            )
            loader = DataLoader(Steps(start, self.steps, self.make), batch_size=None)
            held_out = [rows_of(10_000 + i, rows=3) for i in range(self.val)]
            val = DataLoader(held_out, batch_size=None) if held_out else None  # pyright: ignore
            trainer.fit(self.module, loader, val)
        return self

    def weights(self) -> dict[str, torch.Tensor]:
        return {k: v.detach().clone() for k, v in self.module.model.state_dict().items()}
