"""A process killed at a step and resumed equals the unbroken run: every recipe, with an adapter and
without; to the last bit, on a CPU."""

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import txlab
from txlab.loading import inherited
from txlab.run import train
from txlab.train import checkpoint

SIZES = [
    *("model.dim=16", "model.n_layers=2", "model.n_heads=2", "model.context=48"),
    *("model.dropout=0.1", "tokenizer.vocab_size=300"),
]
SHORT = [
    *("trainer=cpu", "data.batch_size=4", "data.micro_batch_size=2", "optim.lr=0.01"),
    *("train.steps=12", "train.val_every=4", "train.save_every=5", "train.log_every=2"),
]
MADE_UP = ["data.n_train=60", "data.n_val=12"]
RECIPES = {
    "pretrain": ["+recipe=pretrain", *SIZES],
    "sft": ["+recipe=sft", *MADE_UP],
    "dpo": ["+recipe=dpo", *MADE_UP],
}
ADAPTERS = {"": [], "lora": ["adapter=lora", "adapter.r=2", "adapter.dropout=0.1"]}
KILLED, SAVED, ALL = 8, 5, 12
"""Steps: where the process dies, what it has saved by then, where the run ends."""
KILL = f"""
import os, signal, sys
from txlab.train.module import TrainModule
finish = TrainModule._finish_step
def finish_and_die(self):
    finish(self)
    if self.counters.step == {KILLED}:
        os.kill(os.getpid(), signal.SIGKILL)
TrainModule._finish_step = finish_and_die
from txlab.__main__ import main
sys.exit(main())
"""
ROOT = Path(txlab.__file__).parents[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a text and a run `base` in it."""
    there = tmp_path_factory.mktemp("killed")
    text = "\n\n".join(f"Line {i}: {i * 7 % 13} {'word ' * (i % 9)}jumps." for i in range(150))
    (there / "text.txt").write_text(text)
    go(there, "base", ["data=chat", *SIZES, *SHORT, *MADE_UP, "train.steps=1"])
    return there


def words_of(there: Path, recipe: str, adapter: str) -> list[str]:
    place = "data.path" if recipe == "pretrain" else "model.init_from"
    start = f"{place}={there / ('text.txt' if recipe == 'pretrain' else 'base')}"
    return [*RECIPES[recipe], *SHORT, start, *ADAPTERS[adapter]]


def go(there: Path, name: str, words: list[str], *more: str) -> None:
    """A run as the command line makes it, in this process."""
    given = [*words, f"data.cache_dir={there / 'cache'}", f"run_dir={there / name}", *more]
    train(inherited(txlab.compose(given), given)[0])


def killed(there: Path, name: str, words: list[str]) -> None:
    """The same in a process of its own, that dies in the middle."""
    given = [*words, f"data.cache_dir={there / 'cache'}", f"run_dir={there / name}"]
    done = subprocess.run(
        [sys.executable, "-c", KILL, *given],
        cwd=there,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    return [{k: v for k, v in row.items() if k not in ("tokens_per_s", "mfu")} for row in found]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_resumed_equals_unbroken(made: Path, recipe: str, adapter: str):
    words, name = words_of(made, recipe, adapter), f"{recipe}{adapter}"
    whole, cut = made / f"{name}-whole", made / f"{name}-cut"
    go(made, whole.name, words)
    killed(made, cut.name, words)
    assert [found.step for found in checkpoint.complete(cut / "checkpoints")] == [SAVED]
    go(made, cut.name, words, "resume=auto")
    assert rows(whole) == rows(cut)
    assert int(rows(cut)[-1]["step"]) == ALL
    for file in ("samples.txt", "answers.jsonl"):
        assert (whole / file).exists() == (cut / file).exists()
        if (whole / file).exists():
            assert (whole / file).read_text() == (cut / file).read_text()
    one, two = checkpoint.find(whole), checkpoint.find(cut)
    kind = "adapter" if adapter and recipe != "pretrain" else "weights"
    kinds = ["weights", "adapter"] if adapter and recipe == "pretrain" else [kind]
    for kind in kinds:
        before, after = getattr(one, kind)(), getattr(two, kind)()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)
    assert equal(one.state(), two.state())


def equal(one: object, two: object) -> bool:
    """Whether two states hold the same, time taken aside."""
    if isinstance(one, dict) and isinstance(two, dict):
        keys = {*one, *two} - {"seconds", "tokens_per_s", "mfu"}
        return all(key in one and key in two and equal(one[key], two[key]) for key in keys)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return torch.equal(one, two)
    return one == two
