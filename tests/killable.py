"""A run in a process that may be killed: forked from a server that has loaded all of txlab once."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from typing import Any

PRELOADED = ["tests.killable", "txlab.run", "txlab.loading", "lightning.pytorch", "txlab.schema"]
PRELOADED += ["txlab.train.callbacks", "txlab.train.trainer", "txlab.train.datamodule"]


def start(words: Sequence[str]) -> Any:
    """A process that trains what `words` say, in silence."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(PRELOADED)
    process = server.Process(target=run, args=(list(words),), daemon=True)
    process.start()
    return process


def run(words: list[str]) -> None:
    """Train; what is printed goes nowhere, an error ends with its line on stderr."""
    import torch

    import txlab
    from txlab.run import train

    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    train(txlab.compose(words))
