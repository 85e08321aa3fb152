"""The fixture `tracked`: a tiny run that W&B (offline) and TensorBoard follow."""

from pathlib import Path
from typing import Any

import pytest

import txlab
from tests.train.tiny_run import Run
from txlab.train.callbacks import Tracking
from txlab.train.checkpoint import Checkpoint
from txlab.train.tracking import code_state
from txlab.train.trainer import make_loggers

CONFIG = {"model": {"dim": 16, "attn": {"name": "gqa", "window": None}}, "optim": {"lr": 1e-3}}

FEW = {"log_every": 2, "val_every": 3, "pictures": False}


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`tracked(steps, *words, **fields)` trains in `tmp_path/run`; `words` are overrides."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    monkeypatch.setattr(code_state, "repository", lambda folder: (None, b""))  # asks git for long

    def start(steps: int, *words: str, resume: Checkpoint | None = None, **fields: Any) -> Run:
        folder = tmp_path / "run"
        run = Run(folder, steps, resume=resume, **{**FEW, **fields})
        given = txlab.compose(["logger=[wandb,tensorboard]", *words]).logger
        said: list[str] = []
        step = run.module.counters.step
        loggers = make_loggers(given, folder, said.append, step)
        for logger in loggers:
            logger.log_hyperparams(CONFIG)
        run.extra = {"logger": loggers}
        run.callbacks.append(Tracking(folder, run.checkpoints, facts={}, resumed_step=step))
        return run.fit()

    return start
