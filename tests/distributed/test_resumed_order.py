"""A run that goes on with more or fewer ranks, or another strategy, sees the rows it would have."""

import json
from pathlib import Path

import pytest

import txlab
from tests.distributed.witness import Witness
from tests.test_run import TEXT, TINY
from txlab.run import train
from txlab.train.callbacks.log import read_rows

TWO = "trainer.devices=2 trainer.accelerator=cpu"


class Seen(Witness):
    """Writes down the rows of every step, each rank in a file of its own."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        rows = [row.tolist() for micro_batch in batch for row in micro_batch["tokens"]]
        step = pl_module.counters.step + 1  # pyright: ignore
        self.write(trainer, {"step": step, "rows": rows})


def seen(folder: Path, ranks: tuple[int, ...] = (0, 1)) -> dict[int, list[list[int]]]:
    """The rows of each step, of all `ranks` together."""
    found: dict[int, list[list[int]]] = {}
    for rank in ranks:
        file = folder / f"rank-{rank}.jsonl"
        for entry in map(json.loads, file.read_text().splitlines() if file.exists() else ()):
            found.setdefault(entry["step"], []).extend(entry["rows"])
    return {step: sorted(rows) for step, rows in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp_tp"])
def test_one_rank_then_two_then_one(tmp_path, strategy):
    (tmp_path / "text.txt").write_text(TEXT)
    words = [word for word in TINY if not word.startswith("trainer")]
    words += [f"data.path={tmp_path}/text.txt", f"data.cache_dir={tmp_path}/cache"]
    words += ["model.vocab_size=300"]  # even: two ranks share the rows of the embedding
    words += ["train.steps=6", "train.log_every=1", "train.pictures=false", "train.sample=null"]

    def part(name: str, *more: str) -> None:
        given = Seen.words(tmp_path / f"{name}-seen")
        train(txlab.compose([*words, *given, f"run_dir={tmp_path / name}", *more]))

    part("whole", "trainer=cpu")
    part("parts", "trainer=cpu", "train.stop_at=2")
    two = [f"trainer={strategy}", *TWO.split()]
    part("parts", *two, "train.stop_at=4", "resume=auto")
    part("parts", "trainer=cpu", "resume=auto")
    files = tmp_path / "parts-seen"
    assert len(list(files.iterdir())) == 2
    same = strategy == "fsdp_tp"  # both ranks work on the same rows
    found = seen(files, (0,) if same else (0, 1))
    assert seen(tmp_path / "whole-seen") == found
    assert len(found) == 6
    first, second = (seen(files, (rank,)) for rank in (0, 1))
    assert [first[step] == second[step] for step in (3, 4)] == [same, same]
    whole, parts = (read_rows(tmp_path / name / "metrics.csv") for name in ("whole", "parts"))
    for key in ("step", "updates", "tokens", "train/loss", "lr", "grad_norm"):
        assert [row[key] for row in parts] == pytest.approx([row[key] for row in whole], rel=1e-4)
    assert parts[-1]["val/loss"] == pytest.approx(whole[-1]["val/loss"], rel=1e-4)
