"""Averages and float32 masters under every strategy: those of one process, also after a resume."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.strategies import figures, on_ranks, run, task

EVERY = {"val_every": 1, "save_every": 2, "keep_last": 9}
CASES: dict[str, dict[str, Any]] = {
    "ema": {"train": {"ema": 0.8, **EVERY}},
    "schedule_free": {"optim": ["schedule_free", {"eps": 1e-3}], "train": EVERY},
    "bf16-true": {"train": {"precision": "bf16-true", **EVERY}},
    "bf16-true-ema": {"train": {"precision": "bf16-true", "ema": 0.8, **EVERY}},
}
CLOSE = {"ema": 1e-5, "schedule_free": 1e-5, "bf16-true": 2e-3, "bf16-true-ema": 2e-3}
"""Absolute, for weights and moments."""
# Layers that are cut round other partial sums to bfloat16: no comparison of weights for those.
PAIRS = [
    (name, strategy)
    for name in CASES
    for strategy in ("ddp", "fsdp", "tp", "resumed")
    if not ("bf16" in name and strategy == "tp")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("averages")
    tasks = []
    for name, case in CASES.items():
        run(folder / f"{name}-one", case, "one")
        half = str(folder / f"{name}-one" / "checkpoints" / "step-000002")
        tasks += [task(case, s, f"{name}-{s}") for n, s in PAIRS if n == name and s != "resumed"]
        tasks.append(task(case, "fsdp", f"{name}-resumed", half))
    on_ranks(folder, tasks)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "strategy"), PAIRS)
def test_ranks_equal_one_process(folder: Path, name: str, strategy: str):
    rows, tensors = figures(folder / f"{name}-one")
    found, theirs = figures(folder / f"{name}-{strategy}")
    assert theirs.keys() == tensors.keys()
    for key, tensor in tensors.items():
        assert theirs[key].dtype == tensor.dtype
        torch.testing.assert_close(theirs[key], tensor, rtol=0, atol=CLOSE[name], msg=key)
    for row, other in zip(found, rows[-len(found) :], strict=True):
        assert row == pytest.approx(other, rel=2e-2 if "bf16" in name else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_saved_goes_on_in_one_process(folder: Path, name: str, tmp_path: Path):
    """A checkpoint of sharded weights resumes without ranks."""
    half = folder / f"{name}-fsdp" / "checkpoints" / "step-000002"
    resumed = run(tmp_path / "one", CASES[name], "one", str(half))
    _, tensors = figures(folder / f"{name}-one")
    _, theirs = figures(resumed.folder)
    for key, tensor in tensors.items():
        torch.testing.assert_close(theirs[key], tensor, rtol=0, atol=CLOSE[name], msg=key)
