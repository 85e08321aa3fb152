"""Ranks that torchrun starts, for tests whose script is run by every one of them."""

import os
import subprocess
import sys
from pathlib import Path


def torchrun(script: Path | str, *words: object, world: int = 2, timeout: float = 240) -> None:
    """`script` with `words` on `world` ranks of this machine; AssertionError with what they said
    where they fail."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*start, "--nproc-per-node", str(world), str(script), *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
