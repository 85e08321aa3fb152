"""Two ranks equal one process: every recipe, adapted or not, under every trainer (GA-02)."""

import json
from pathlib import Path

import pytest
import torch

from tests.distributed.recipes import (
    ALONE,
    MADE_UP,
    RECIPES,
    SIZES,
    SPREADS,
    VARIANTS,
    config_of,
    go,
)
from tests.distributed.torchrun import torchrun
from txlab.data.batch import IGNORE
from txlab.run import prepare_data
from txlab.train import checkpoint
from txlab.train.callbacks.log import read_rows

SCRIPT = Path(__file__).with_name("recipes.py")
LENGTHS = [3, 60, 9, 31, 5, 44]
TEXTS = [" ".join(f"w{i * j % 11}" for j in range(LENGTHS[i % 6])) for i in range(80)]


def tensors(run: Path) -> dict[str, torch.Tensor]:
    found = checkpoint.find(run)
    adapted = found.has(checkpoint.ADAPTER)
    return dict(found.adapter() if adapted else found.weights())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every variant, by one process and by two ranks that a launcher of others' has started."""
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    go(folder, "base", ["data=chat", *SIZES, *MADE_UP], *ALONE, "train.steps=1")
    for name, words in VARIANTS.items():
        go(folder, name, words, *ALONE)
    torchrun(SCRIPT, folder, timeout=600)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks_equal_one_process(folder: Path, name: str, spread: str):
    one, two = tensors(folder / name), tensors(folder / f"{name}-{spread}")
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=0, atol=1e-6)
    alone, both = (read_rows(folder / run / "metrics.csv") for run in (name, f"{name}-{spread}"))
    assert [row["step"] for row in both] == [1, 2, 3, 4, 5]
    for key in ("train/loss", "val/loss", "grad_norm"):
        found = [row[key] for row in both if key in row]
        assert found == pytest.approx([row[key] for row in alone if key in row], rel=2e-5)
    assert both[-1]["updates"] == 5


@pytest.mark.slow
def test_the_runs_move_what_is_compared(folder: Path):
    """Else all would be equal because nothing happens: 50 times what may differ, and more."""
    losses = [row["train/loss"] for row in read_rows(folder / "pretrain" / "metrics.csv")]
    assert losses[-1] < losses[0] - 0.02
    start = tensors(folder / "base")
    for name in ("sft", "dpo"):
        moved = tensors(folder / name)
        assert max(float((moved[key] - start[key]).abs().max()) for key in start) > 1e-4
    for name in ("pretrain-lora", "sft-lora", "dpo-lora"):
        b = [t for key, t in tensors(folder / name).items() if "lora_b" in key.lower()]
        assert b
        assert min(float(t.abs().max()) for t in b) > 5e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_the_ranks_count_differently(folder: Path, name: str):
    """Else a mean of the ranks' means would do. Of pairs each rank has as many: their tokens do."""
    data = prepare_data(config_of(folder, "none", RECIPES[name], *ALONE))
    ranks = [data.step_batches(rank=rank, world=2) for rank in (0, 1)]
    for step in range(5):
        one, two = (
            sum(int((batch["labels"] != IGNORE).sum()) for batch in rank.at(step)) for rank in ranks
        )
        if one != two:
            return
    pytest.fail("both ranks have equal counts in every step")
