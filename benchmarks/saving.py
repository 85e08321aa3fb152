"""How long a save holds up training, by size of the checkpoint, and where the time goes.

    python -m benchmarks.saving [--folder DIR] [--rounds 5]

A checkpoint of weights and AdamW's moments is written as runs write it: serialised, synced to the
disk, summed, renamed. `of it` is what no save can do without: the same bytes written and synced.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from txlab.train import checkpoint

SIZES = (1, 10, 50)
"""Millions of parameters."""


def made(millions: int) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """Weights and an optimizer's state, as of a model with a hundred tensors."""
    shape = (100, millions * 100)
    tensors = {f"layer{i}.weight": torch.randn(shape) for i in range(100)}
    moments = {
        name: {"step": torch.tensor(1.0), "exp_avg": t.clone(), "exp_avg_sq": t.clone()}
        for name, t in tensors.items()
    }
    return tensors, {"optimizer": moments}


def saves(folder: Path, millions: int, rounds: int) -> list[float]:
    """Seconds of each save."""
    tensors, state = made(millions)
    seconds = []
    for step in range(rounds):
        begin = time.perf_counter()
        checkpoint.save(folder, step, tensors=tensors, state=state, config="", save_tokenizer=None)
        seconds.append(time.perf_counter() - begin)
    return seconds


def writes(folder: Path, size: int, rounds: int) -> list[float]:
    """Seconds to write and sync as many bytes."""
    data, seconds = os.urandom(2**20), []
    for _ in range(rounds):
        begin = time.perf_counter()
        with (folder / "plain").open("wb") as stream:
            for _ in range(max(size // 2**20, 1)):
                stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        seconds.append(time.perf_counter() - begin)
    (folder / "plain").unlink()
    return seconds


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=None, help="where to write; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(
        f"{'parameters':>12} {'MiB':>8} {'save s':>8} {'MiB/s':>8} {'of it: write and sync s':>24}"
    )
    for millions in SIZES:
        with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
            folder = Path(temporary)
            stall = median(saves(folder / "run", millions, given.rounds))
            newest = checkpoint.find(folder / "run").path
            size = sum(file.stat().st_size for file in newest.iterdir())
            plain = median(writes(folder, size, given.rounds))
        mib = size / 2**20
        print(f"{millions:>10} M {mib:>8.0f} {stall:>8.2f} {mib / stall:>8.0f} {plain:>24.2f}")


if __name__ == "__main__":
    main()
