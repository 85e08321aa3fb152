"""From the command to the first optimizer step, part by part.

    python -m benchmarks.startup [--rounds 5] [overrides ...]

Runs `python -m txlab +recipe=pretrain ...` as a user does, with its data prepared before, and
reads the moments at which the run says its plan, ends its first step and ends. Medians.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

MARKS = """
import sys, time
from txlab.train.module import TrainModule
finish = TrainModule._finish_step
def told(self):
    if self.counters.step == 1:
        print("FIRST", time.time(), flush=True)
    finish(self)
TrainModule._finish_step = told
"""
START = "import sys\nfrom txlab.__main__ import main\n"
LAZY = """
import importlib.abc, importlib.machinery, sys
class Late(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "txlab.train.module":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            exec(MARKS, {})
        spec.loader.exec_module = exec_module
        return spec
"""


def once(words: list[str], folder: str) -> tuple[float, float, float]:
    """Seconds until the plan is said, until the first step is over, and in all."""
    code = f"MARKS = {MARKS!r}\n{LAZY}sys.meta_path.insert(0, Late())\n{START}sys.exit(main())"
    begin = time.time()
    with subprocess.Popen(
        [sys.executable, "-c", code, *words, f"run_dir={folder}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
    ) as process:
        planned = first = 0.0
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("plan"):
                planned = time.time() - begin
            if line.startswith("FIRST"):
                first = float(line.split()[1]) - begin
    if process.returncode:
        raise SystemExit(f"the run ended with {process.returncode}")
    return planned, first, time.time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    words = ["+recipe=pretrain", "train.steps=1", "train.val_batches=1", "train.sample=null"]
    with tempfile.TemporaryDirectory() as folder:
        once([*words, *args.words], f"{folder}/warm")  # prepares the data, reads the packages once
        found = [once([*words, *args.words], f"{folder}/{i}") for i in range(args.rounds)]
    names = ("plan said", "first step over", "whole run")
    for name, seconds in zip(names, zip(*found, strict=True), strict=True):
        rounds = ", ".join(f"{one:.1f}" for one in seconds)
        print(f"{name:16s} {statistics.median(seconds):5.1f} s   rounds: {rounds}")


if __name__ == "__main__":
    main()
