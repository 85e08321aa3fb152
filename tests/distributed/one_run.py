"""A tiny run for `torchrun`: each rank takes its share of the rows; rank 0 writes figures."""

import json
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.train.tiny_run import Run, rows_of, split  # noqa: E402
from txlab.train.checkpoint import Checkpoint  # noqa: E402


def main(folder: str, accumulate: int, log_every: int = 1, resume: str | None = None) -> None:
    import os

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)

    def make(step):
        shares = split(rows_of(step), *[4 // world] * world)
        return split(shares[rank], *[4 // world // accumulate] * accumulate)

    one = Run(
        Path(folder),
        3,
        make=make,
        val=0,
        save_every=2,
        log_every=log_every,
        resume=None if resume is None else Checkpoint(Path(resume)),
        trainer={"devices": world, "strategy": "ddp" if world > 1 else "auto"},
    ).fit()
    if rank == 0:
        total = {name: tensor.double().sum().item() for name, tensor in one.weights().items()}
        keys = ("train/loss", "train/nll", "grad_norm", "tokens", "updates")
        rows = [{key: row[key] for key in keys} for row in one.log.rows]
        (Path(folder) / "figures.json").write_text(json.dumps({"rows": rows, "weights": total}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
