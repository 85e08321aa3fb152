"""Samples a second and peak memory of LoRA fine-tuning beside TRL, a process each, in turn.

    TXLAB_SMOLLM2=DIR python -m benchmarks.trl [--goals sft dpo] [--rounds 3] [--steps 6]

Rank 8 on q, k, v, o; 8 chats or pairs a step, fp32, the same ids in the same padded batches; the
runs of txlab are those of its command line, Lightning and log included. TRL stands there twice, as
it comes (gradient checkpointing on) and with checkpointing off, which is faster and takes more
memory. Steps count from the third on; peak memory is the process's (ru_maxrss).
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from tests.real.chats import write

BATCH = 8
WARM_UP = 2
SIDES = ("txlab", "trl", "trl-no-checkpointing")


class Clock(Callback):
    """Notes when each step ends, and the loss of the first."""

    ends: list[float] = []  # noqa: RUF012
    losses: list[float] = []  # noqa: RUF012

    def on_train_batch_end(self, *_: Any) -> None:
        self.ends.append(time.perf_counter())

    def on_row(self, trainer: Any, module: Any, row: dict[str, float]) -> None:
        self.losses.append(row["train/loss"])


def words(goal: str, model: str, folder: str, steps: int) -> list[str]:
    """What stands on the command line of txlab."""
    data = "chats" if goal == "sft" else "pairs"
    return [
        *(f"+recipe={goal}", f"model.init_from={model}", "adapter=lora", "adapter.r=8"),
        *("adapter.targets=[attention]", f"data.path={folder}/{data}.jsonl"),
        *(f"data.batch_size={BATCH}", "data.val_fraction=0", f"data.cache_dir={folder}/cache"),
        *(["data.packed=false"] if goal == "sft" else []),
        *(f"train.steps={steps}", "train.val_every=null", "train.sample=null", "optim.lr=2e-4"),
        *("train.log_every=1", "train.save_every=null", "trainer=cpu"),
    ]


def configured(goal: str, model: str, folder: str, steps: int) -> Any:
    """The config of a run of txlab."""
    import txlab
    from txlab.loading import inherited

    given = words(goal, model, folder, steps)
    return inherited(txlab.compose(given), given)[0]


def run_txlab(goal: str, model: str, folder: str, steps: int) -> tuple[list[float], float]:
    """(When each step ended, first loss) of a run as the command line makes it."""
    from txlab.run import train

    config = configured(goal, model, folder, steps)
    config.run_dir = tempfile.mkdtemp(dir=folder)
    config.callbacks = {"clock": {"_target_": "benchmarks.trl.Clock"}}
    train(config)
    from benchmarks.trl import Clock as Made  # this file's other self: here it is __main__

    return Made.ends, Made.losses[0]


def run_trl(
    goal: str, model: str, folder: str, steps: int, checkpointing: bool
) -> tuple[list[float], float]:
    """The same of TRL's trainer, on the rows that the parent has written."""
    from transformers import TrainerCallback

    from tests.real.trl_peer import trainer

    records = json.loads((Path(folder) / f"{goal}.json").read_text())
    made = trainer(
        goal,
        Path(model),
        records,
        output_dir=tempfile.mkdtemp(dir=folder),
        per_device_train_batch_size=BATCH,
        max_steps=steps,
        learning_rate=2e-4,
        logging_steps=1,
        gradient_checkpointing=checkpointing,
    )
    ends: list[float] = []

    class Ends(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    made.add_callback(Ends())
    made.train()
    return ends, next(row["loss"] for row in made.state.log_history if "loss" in row)


def child(side: str, goal: str, model: str, folder: str, steps: int) -> None:
    """One run in this process; its last line of output is its figures."""
    if side == "txlab":
        ends, loss = run_txlab(goal, model, folder, steps)
    else:
        ends, loss = run_trl(goal, model, folder, steps, side == "trl")
    seconds = [b - a for a, b in itertools.pairwise(ends)][WARM_UP - 1 :]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "peak": peak, "loss": loss}))


def write_rows(goal: str, model: str, folder: str, steps: int) -> None:
    """The rows of txlab's steps for TRL to train on, in their order."""
    from tests.real.trl_peer import dpo_records, sft_records
    from txlab.run import prepare_data

    data = prepare_data(configured(goal, model, folder, steps))
    records, lengths = [], []
    for (batch,) in data.step_batches(0, steps):
        records += sft_records(batch) if goal == "sft" else dpo_records(batch)
        lengths += batch["valid"].sum(1).tolist()
    (Path(folder) / f"{goal}.json").write_text(json.dumps(records))
    print(f"{goal}: {len(records)} samples of {min(lengths)} to {max(lengths)} tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--goals", nargs="+", default=["sft", "dpo"])
    parser.add_argument("--sides", nargs="+", default=SIDES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--child", nargs=3, metavar=("SIDE", "GOAL", "FOLDER"))
    args = parser.parse_args()
    model = os.environ["TXLAB_SMOLLM2"]
    if args.child:
        side, goal, folder = args.child
        return child(side, goal, model, folder, args.steps)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), 8 * BATCH)
        for goal in args.goals:
            write_rows(goal, model, folder, args.steps)
            compare(goal, folder, args)
    return None


def compare(goal: str, folder: str, args: argparse.Namespace) -> None:
    """Print a line for each side: samples a second, peak memory, both against the first side's."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in args.sides}
    for _ in range(args.rounds):
        for side in args.sides:
            command = [sys.executable, "-m", "benchmarks.trl", "--steps", str(args.steps)]
            command += ["--child", side, goal, folder]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stdout + done.stderr)
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
    first: dict[str, float] = {}
    for side, runs in found.items():
        seconds = statistics.median(s for run in runs for s in run["seconds"])
        rate, peak = BATCH / seconds, max(run["peak"] for run in runs)
        first = first or {"rate": rate, "peak": peak}
        print(
            f"{goal}  {side:21s} {rate:6.2f} samples/s  peak {peak:5.2f} GiB  first loss "
            f"{runs[0]['loss']:.5f}  ({args.sides[0]}: {first['rate'] / rate:.2f}x the speed, "
            f"{first['peak'] / peak:.2f}x the memory)",
            flush=True,
        )


if __name__ == "__main__":
    main()
