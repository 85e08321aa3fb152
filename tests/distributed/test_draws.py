"""Two ranks draw other numbers than each other and at every step, the same ones again when a run
is made again or goes on (DDP-04, CKPT-08)."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import txlab
from tests.distributed.witness import Witness
from tests.test_resume import TEXT, TINY, assert_same, rows
from txlab.run import prepare_data, train

KINDS = ("python", "numpy", "torch", "dropout")


class Draws(Witness):
    """Writes down what each rank draws at each step, and what its weights are at the start."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        found = hashlib.sha256()
        for parameter in pl_module.model.parameters():
            found.update(parameter.detach().numpy().tobytes())
        self.write(trainer, {"weights": found.hexdigest()})

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        mask = torch.nn.functional.dropout(torch.ones(64), 0.5)
        entry = {
            "step": pl_module.counters.step,
            "python": random.random(),
            "numpy": float(numpy.random.random()),
            "torch": float(torch.rand(())),
            "dropout": mask.tolist(),
        }
        self.write(trainer, entry)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`whole` and `again`: 30 steps; `middle` and `end`: stopped within an epoch and at its end."""
    folder = tmp_path_factory.mktemp("draws")
    (folder / "text.txt").write_text(TEXT)
    words = [word for word in TINY if not word.startswith(("trainer", "data.batch"))]
    words += [f"data.path={folder}/text.txt", f"data.cache_dir={folder}/cache"]
    words += ["train.steps=30", "train.pictures=false", "train.sample=null"]
    n = len(prepare_data(txlab.compose(words)).train)
    size = n // 26 * 2  # as many rows for each rank, and two epochs in 30 steps
    epoch = -(-n // size)
    assert 13 < epoch <= 16
    words += [f"data.batch_size={size}", "data.micro_batch_size=null"]
    words += ["trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu"]
    (folder / "epoch").write_text(str(epoch))

    def go(name: str, *more: str) -> None:
        given = Draws.words(folder / f"{name}-draws")
        train(txlab.compose([*words, *given, f"run_dir={folder / name}", *more]))

    go("whole")
    go("again")
    for name, stop in (("middle", 13), ("end", epoch)):
        go(name, f"train.stop_at={stop}")
        go(name, "resume=auto")
    return folder


def drawn(folder: Path, name: str) -> list[list[dict[str, Any]]]:
    """Lines of each rank."""
    files = sorted((folder / f"{name}-draws").iterdir())
    assert [file.name for file in files] == ["rank-0.jsonl", "rank-1.jsonl"]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.mark.slow
def test_ranks_start_with_the_same_weights(folder: Path) -> None:
    one, two = drawn(folder, "whole")
    assert one[0] == two[0]
    assert "weights" in one[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_two_draws_of_two_epochs_on_two_ranks_are_the_same(folder: Path, kind: str) -> None:
    lines = [line for rank in drawn(folder, "whole") for line in rank if "step" in line]
    assert len(lines) == 2 * 30 >= 4 * (int((folder / "epoch").read_text()) - 1)
    assert len({json.dumps(line[kind]) for line in lines}) == len(lines)


@pytest.mark.slow
def test_a_run_made_again_draws_the_same(folder: Path) -> None:
    assert drawn(folder, "again") == drawn(folder, "whole")
    assert_same(folder / "whole", folder / "again", 30)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["middle", "end"])
def test_a_run_that_goes_on_is_the_unbroken_one_to_the_bit(folder: Path, name: str) -> None:
    whole, parts = drawn(folder, "whole"), drawn(folder, name)
    for one, two in zip(whole, parts, strict=True):
        assert [line for line in two if "step" in line] == [line for line in one if "step" in line]
    assert_same(folder / "whole", folder / name, 30)
    assert rows(folder / "whole") == rows(folder / name)
