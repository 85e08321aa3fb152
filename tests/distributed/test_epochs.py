"""DDP-02, DDP-05 in runs: 11 sequences, two ranks of two rows each, three epochs."""

import json
from pathlib import Path

import pytest

import txlab
from tests.distributed.test_resumed_order import Seen
from tests.test_run import TINY
from txlab.run import train
from txlab.train.callbacks.log import read_rows

N, EPOCHS = 11, 3
FIRST = 69
WAYS = {
    "rows": ["data.batch_size=4"],
    "tokens": ["data.batch_tokens=96", "data.micro_batch_tokens=48"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("epochs")
    (folder / "text").mkdir()
    for i in range(N):  # each begins as no other, and they are of five lengths
        (folder / "text" / f"{i}.txt").write_text(f"{chr(97 + i)} plum" + " is ripe" * (i % 5))
    words = [word for word in TINY if not word.startswith(("trainer", "data.", "train.steps"))]
    words += [f"data.path={folder}/text", f"data.cache_dir={folder}/cache", "data.val_fraction=0"]
    words += ["data.packing=none", f"train.epochs={EPOCHS}", "train.sample=null"]
    words += ["train.pictures=false"]
    for name, way in WAYS.items():
        for ranks, how in ((1, ["trainer=cpu"]), (2, ["trainer=ddp", "trainer.devices=2"])):
            given = Seen.words(folder / f"{name}-{ranks}")
            how = [*how, *given, f"run_dir={folder}/run-{name}-{ranks}"]
            train(txlab.compose([*words, *way, *how]))
    return folder


def steps_of(folder: Path, name: str, rank: int) -> list[list[int]]:
    """Which of the texts each step of that rank holds; filling has no text."""
    lines = (folder / name / f"rank-{rank}.jsonl").read_text().splitlines()
    return [[row[1] - FIRST for row in json.loads(line)["rows"]] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_ranks_share_each_epoch_out_in_an_order_of_its_own(folder: Path, way: str):
    one, two = (steps_of(folder, f"{way}-2", rank) for rank in (0, 1))
    assert [len(rows) > 0 for rows in one] == [len(rows) > 0 for rows in two]
    flat = [row for step in zip(one, two, strict=True) for rows in step for row in rows]
    epochs = [flat[N * epoch : N * (epoch + 1)] for epoch in range(EPOCHS)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(N))] * EPOCHS
    assert len(set(map(tuple, epochs))) == EPOCHS
    # The last step is a whole one; what it has room for is of the next epoch.
    beyond = flat[N * EPOCHS :]
    assert len(beyond) == (-N * EPOCHS % 4 if way == "rows" else 0)
    assert len(set(beyond)) == len(beyond)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_have_the_rows_of_one_process(folder: Path, way: str):
    alone = steps_of(folder, f"{way}-1", 0)
    one, two = (steps_of(folder, f"{way}-2", rank) for rank in (0, 1))
    assert [a + b for a, b in zip(one, two, strict=True)] == alone
    rows = [read_rows(folder / f"run-{way}-{n}" / "metrics.csv") for n in (1, 2)]
    for key in ("step", "updates", "tokens", "train/loss"):
        assert [r[key] for r in rows[1]] == pytest.approx([r[key] for r in rows[0]], rel=1e-5)
