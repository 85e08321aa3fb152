"""A run that goes on with more or fewer ranks, or another strategy, sees the rows it would have."""

import json
from pathlib import Path

import pytest
from lightning.pytorch import Callback

import txlab
from tests.test_run import TEXT, TINY
from txlab.run import train
from txlab.train.callbacks.log import read_rows

TWO = "trainer.devices=2 trainer.accelerator=cpu"


class Seen(Callback):
    """Writes down the rows of every step, each rank in a file of its own."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        rows = [row.tolist() for micro_batch in batch for row in micro_batch["tokens"]]
        entry = {"step": pl_module.counters.step + 1, "rows": rows}  # pyright: ignore
        with (self.folder / f"rank-{trainer.global_rank}.jsonl").open("a") as stream:
            stream.write(json.dumps(entry) + "\n")


def seen(folder: Path) -> dict[int, list[list[int]]]:
    """The rows of each step, of all ranks together."""
    found: dict[int, list[list[int]]] = {}
    for file in folder.glob("rank-*.jsonl"):
        for entry in map(json.loads, file.read_text().splitlines()):
            found.setdefault(entry["step"], []).extend(entry["rows"])
    return {step: sorted(rows) for step, rows in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_rank_then_two_then_one(tmp_path, strategy):
    (tmp_path / "text.txt").write_text(TEXT)
    words = [word for word in TINY if not word.startswith("trainer")]
    words += [f"data.path={tmp_path}/text.txt", f"data.cache_dir={tmp_path}/cache"]
    words += ["train.steps=6", "train.log_every=1", "train.pictures=false", "train.sample=null"]

    def part(name: str, *more: str) -> None:
        (tmp_path / f"{name}-seen").mkdir(exist_ok=True)
        entry = {"_target_": f"{__name__}.Seen", "folder": tmp_path / f"{name}-seen"}
        given = [f"+callbacks.seen.{key}={value}" for key, value in entry.items()]
        train(txlab.compose([*words, *given, f"run_dir={tmp_path / name}", *more]))

    part("whole", "trainer=cpu")
    part("parts", "trainer=cpu", "train.stop_at=2")
    two = [f"trainer={strategy}", *TWO.split()]
    part("parts", *two, "train.stop_at=4", "resume=auto")
    part("parts", "trainer=cpu", "resume=auto")
    assert seen(tmp_path / "whole-seen") == seen(tmp_path / "parts-seen")
    assert len(seen(tmp_path / "parts-seen")) == 6
    assert len(list((tmp_path / "parts-seen").iterdir())) == 2
    whole, parts = (read_rows(tmp_path / name / "metrics.csv") for name in ("whole", "parts"))
    for key in ("step", "updates", "tokens", "train/loss", "lr", "grad_norm"):
        assert [row[key] for row in parts] == pytest.approx([row[key] for row in whole], rel=1e-4)
    assert parts[-1]["val/loss"] == pytest.approx(whole[-1]["val/loss"], rel=1e-4)
