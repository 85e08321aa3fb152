"""What the framework costs: a whole run of the pretrain recipe against its own bare step.

    python -m benchmarks.overhead [--steps 40] [--rounds 4] [overrides ...]

Without overrides the model has 10 million parameters.

The bare loop does what decides the result and nothing else: the same model, rows, loss, clipping
and AdamW. The run has Lightning, log, progress line and callbacks; its time is that between the
rows of its log, so neither start nor validation nor saving counts. Runs alternate with bare loops
in one process; the ratio of medians is printed.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from pathlib import Path

import torch

import txlab
from txlab.run import prepare_data, train

TEN_MILLION = ["model.dim=320", "model.n_layers=8", "model.n_heads=5"]


def bare_seconds(config, data, steps: int) -> float:
    """Seconds a step of the bare loop."""
    from txlab.loading import build, sized
    from txlab.objectives import objective
    from txlab.train.optim import optim

    model = build(sized(config, data.tokenizer)).train()
    goal = objective.build(config.objective)
    optimizer = optim.build(config.optim).make(model)
    begin = time.perf_counter()
    for micro_batches in data.step_batches(0, steps):
        count = sum(goal.count(batch) for batch in micro_batches)
        for batch in micro_batches:
            (goal(model, batch).sum / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return (time.perf_counter() - begin) / steps


def run_seconds(words: list[str], steps: int, folder: str) -> float:
    """Seconds a step of a whole run."""
    config = txlab.compose([*words, f"run_dir={folder}"])
    with contextlib.redirect_stdout(io.StringIO()):
        summary = train(config)
    return summary["tokens"] / summary["tokens_per_s"] / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("words", nargs="*", default=TEN_MILLION)
    args = parser.parse_args()
    words = ["+recipe=pretrain", *args.words, f"train.steps={args.steps}", "train.sample=null"]
    words += ["train.val_batches=1", "train.save_every=null"]
    config = txlab.compose(words)
    data = prepare_data(config)
    bare_seconds(config, data, 3)
    times: dict[str, list[float]] = {"bare": [], "run": []}
    with tempfile.TemporaryDirectory() as home:
        for i in range(args.rounds):
            times["bare"].append(bare_seconds(config, data, args.steps))
            times["run"].append(run_seconds(words, args.steps, str(Path(home) / f"run{i}")))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        rounds = ", ".join(f"{1000 * value:.1f}" for value in values)
        print(f"{name:5s} {1000 * medians[name]:7.1f} ms a step   rounds: {rounds}")
    print(f"overhead {100 * (medians['run'] / medians['bare'] - 1):+.1f} %")


if __name__ == "__main__":
    main()
