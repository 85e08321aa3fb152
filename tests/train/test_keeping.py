"""Which checkpoints stay: the newest, the best, every n-th; and how the best one is named."""

import math
from pathlib import Path

import pytest
import torch

from tests.train.test_checkpoint import save
from tests.train.tiny_run import Run
from txlab.core.errors import RequestError, RunError
from txlab.train import checkpoint
from txlab.train.checkpoint import Keep, Score
from txlab.train.report import best_kept


def steps(folder: Path) -> list[int]:
    return [found.step for found in checkpoint.complete(folder)]


def save_all(folder: Path, values: list[float], keep: Keep, *, highest: bool = False) -> None:
    for step, value in enumerate(values, start=1):
        save(folder, step, keep=keep, score=Score("val/loss", value, highest))


@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        (Keep(last=2), [7, 8]),
        (Keep(last=1, best=2), [2, 5, 8]),
        (Keep(last=1, every=3), [3, 6, 8]),
        (Keep(last=2, best=1, every=4), [4, 5, 7, 8]),
    ],
)
def test_each_that_one_of_the_rules_names_stays(tmp_path, keep, stay):
    save_all(tmp_path, [9.0, 3.0, 8.0, 7.0, 2.0, math.nan, 6.0, 5.0], keep)
    assert steps(tmp_path) == stay


def test_best_by_the_highest_and_the_earlier_of_equal_ones(tmp_path):
    save_all(tmp_path, [0.1, 0.7, 0.7, 0.2], Keep(last=1, best=1), highest=True)
    assert steps(tmp_path) == [2, 4]


def test_a_run_has_a_best_one_by_name(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    save_all(folder, [3.0, 1.0, 2.0], Keep(last=3))
    save(folder, 4, keep=Keep(last=9))  # not validated
    assert checkpoint.find(tmp_path / "run" / "best").step == 2
    assert checkpoint.find(tmp_path / "run").step == 4
    save_all(tmp_path / "other", [3.0, 1.0], Keep(last=3))
    assert checkpoint.find(tmp_path / "other" / "best").step == 2


def test_without_a_validated_step_there_is_no_best(tmp_path):
    save(tmp_path / "checkpoints", 1)
    with pytest.raises(RequestError, match=r"no checkpoint of a validated step.*keep_best=1"):
        checkpoint.find(tmp_path / "best")


def test_scores_of_another_kind_are_not_compared(tmp_path):
    save(tmp_path, 1, keep=Keep(9), score=Score("val/loss", 0.1))
    save(tmp_path, 2, keep=Keep(9), score=Score("val/exact_match", 0.5, True))
    save(tmp_path, 3, keep=Keep(9), score=Score("val/exact_match", 0.4, True))
    assert [c.step for c in checkpoint.best_first(checkpoint.complete(tmp_path))] == [2, 3]


def scripted(monkeypatch, losses: dict[int, float]) -> None:
    """Validation says `losses`, by step."""
    from txlab.train.callbacks import Log

    before = Log.on_row

    def on_row(self, trainer, module, row):
        if "val/loss" in row:
            row["val/loss"] = losses[row["step"]]
        before(self, trainer, module, row)

    monkeypatch.setattr(Log, "on_row", on_row)


def test_the_best_are_saved_when_they_are_validated(tmp_path, monkeypatch):
    """Between two intervals of saving, too; and the end is the newest."""
    scripted(monkeypatch, {2: 5.0, 4: 2.0, 6: 3.0, 8: 4.0, 10: 6.0})
    run = Run(tmp_path, 10, val_every=2, save_every=9, keep_last=1)
    run.checkpoints.keep = Keep(last=1, best=2)
    run.fit()
    assert steps(tmp_path / "checkpoints") == [4, 6, 10]
    assert checkpoint.find(tmp_path / "best").step == 4
    assert best_kept(tmp_path) == "step-000004, val/loss 2.0000"


def test_a_run_that_goes_on_knows_the_best_of_before(tmp_path, monkeypatch):
    scripted(monkeypatch, {2: 1.0, 4: 2.0, 6: 3.0, 8: 0.5})
    for steps_now, resume in ((4, None), (8, tmp_path)):
        found = None if resume is None else checkpoint.find(resume)
        run = Run(tmp_path, steps_now, val_every=2, keep_last=1, resume=found)
        run.checkpoints.keep = Keep(last=1, best=2)
        run.fit()
    assert steps(tmp_path / "checkpoints") == [2, 8]
    assert checkpoint.find(tmp_path / "best").step == 8


def test_an_unknown_figure_is_named_with_those_there_are(tmp_path):
    run = Run(tmp_path, 4, val_every=2)
    run.checkpoints.keep, run.checkpoints.best = Keep(best=1), "val/los"
    with pytest.raises(RunError, match=r"train\.best=val/los: there is no such figure.*val/loss"):
        run.fit()


def test_saving_the_best_changes_nothing(tmp_path):
    plain = Run(tmp_path / "plain", 6, val_every=2, dropout=0.1).fit()
    kept = Run(tmp_path / "kept", 6, val_every=2, dropout=0.1)
    kept.checkpoints.keep = Keep(best=3)
    kept.fit()
    assert all(torch.equal(kept.weights()[k], v) for k, v in plain.weights().items())


def test_what_is_kept_for_ever_is_saved_at_its_step(tmp_path):
    run = Run(tmp_path, 7, save_every=5, keep_last=1)
    run.checkpoints.keep = Keep(last=1, every=3)
    run.fit()
    assert steps(tmp_path / "checkpoints") == [3, 6, 7]
