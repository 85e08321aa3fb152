"""Tokens a second on one process and on two, the same batch and the same result.

    python -m benchmarks.ranks [--steps 20] [--rounds 3] [--strategies ddp,fsdp] [overrides ...]

Each process has one thread, so that two of them are twice the machine of one. Runs alternate; the
ratio of medians is told, 2.0 being all there is to gain.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def rate(words: list[str], folder: str) -> tuple[float, float]:
    """Tokens a second of a run and its last training loss."""
    subprocess.run(
        [sys.executable, "-m", "txlab", *words, f"run_dir={folder}"],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    summary = json.loads((Path(folder) / "summary.json").read_text())
    return summary["tokens_per_s"], summary["train/loss"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--strategies", default="ddp")
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    words = ["+recipe=pretrain", f"train.steps={args.steps}", "train.val_batches=1", *args.words]
    words += ["train.sample=null", "train.log_every=1000", "trainer.accelerator=cpu"]
    kinds = {"1 process": ["trainer=cpu"]}
    for name in args.strategies.split(","):
        kinds[f"2 x {name}"] = [f"trainer={name}", "trainer.devices=2"]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(args.rounds):
            for number, (name, chosen) in enumerate(kinds.items()):
                found[name].append(rate([*words, *chosen], f"{folder}/{turn}-{number}"))
    alone = statistics.median(one for one, _ in found["1 process"])
    for name, pairs in found.items():
        middle = statistics.median(one for one, _ in pairs)
        rounds = ", ".join(f"{one:,.0f}" for one, _ in pairs)
        print(
            f"{name:12s} {middle:8,.0f} tokens/s {middle / alone:5.2f}x   "
            f"loss {pairs[0][1]:.6f}   rounds: {rounds}"
        )


if __name__ == "__main__":
    main()
